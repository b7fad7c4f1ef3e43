"""jagged: layers and ops on rows of different lengths, for recommender models.

`JaggedTensor` is the layout (values and offsets), `jagged.ops` the functions on plain tensors,
`jagged.modules` the layers. `import jagged` loads torch and nothing else.
"""

from jagged import modules, ops
from jagged.attention import BucketedBias, HSTUMask
from jagged.layout import JaggedTensor

__version__ = "0.1.0"
__all__ = ["BucketedBias", "HSTUMask", "JaggedTensor", "modules", "ops"]
