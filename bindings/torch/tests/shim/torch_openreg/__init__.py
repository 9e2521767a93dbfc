# PyTorch's tests of its example device import a package of this name: here it is ours, under that device's name.
import torch_anyaccel  # noqa: F401
