"""Conversions from and to other libraries' ragged formats; each imports its library when called."""
