"""Conversions from and to other libraries' ragged formats; each imports its library when called.

Modules, imported by name: `torchrec`, `fbgemm` (functions of the same names; `fbgemm_dispatch` puts
these ops under its operators), `nested` (torch's), `arrow`, and `pointers` (`cu_seqlens`, Merlin's
dicts, PyG's `ptr` and `batch`, scipy's CSR).
"""
