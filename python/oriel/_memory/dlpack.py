"""Memory as a DLPack capsule, the door by which JAX takes memory of a GPU as it lies."""

import ctypes

import jax

# DLDataTypeCode of dlpack.h.
_CODES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), 0),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), 1),
    **dict.fromkeys(("float16", "float32", "float64"), 2),
    "bfloat16": 4,
    **dict.fromkeys(("complex64", "complex128"), 5),
    "bool": 6,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
DTYPES = frozenset(_CODES)
_PLATFORMS = {"cpu": 1, "gpu": 2}  # DLDeviceType; a GPU is one of CUDA
_NAME = b"dltensor"  # of a capsule that nobody has taken; it lives as long as any


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_lent = {}  # address of a _Managed: it, and the owner of its memory


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _give_back(managed, lent=_lent):
    """XLA calls it from any thread when nothing uses the memory any more."""
    lent.pop(managed, None)


_python = ctypes.PyDLL(None)  # whose prototypes, unlike those of ctypes.pythonapi, nobody shares
_new = _python.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# In its destructor a capsule has no references, so that it is not to become an object again.
_is_valid = _python.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _end_capsule(capsule):
    if _is_valid(capsule, _NAME):
        _give_back(_pointer(capsule, _NAME))


for _callback in (_give_back, _end_capsule):  # arrays may outlive this module
    _python.Py_IncRef(ctypes.py_object(_callback))


class _Memory:
    """What jax.dlpack takes."""

    def __init__(self, ptr, shape, dtype, device, owner):
        self._place = (_PLATFORMS[device.platform], device.local_hardware_id)
        managed = _Managed()
        managed.tensor.data = ptr
        managed.tensor.device = _Device(*self._place)
        managed.tensor.ndim = len(shape)
        managed.tensor.dtype = _Dtype(_CODES[dtype.name], 8 * dtype.itemsize, 1)
        managed.tensor.shape = (ctypes.c_int64 * len(shape))(*shape)  # which the structure keeps
        managed.deleter = ctypes.cast(_give_back, ctypes.c_void_p)
        self._managed, self._owner = managed, owner

    def __dlpack_device__(self):
        return self._place

    def __dlpack__(self, **_):
        address = ctypes.addressof(self._managed)
        _lent[address] = self._managed, self._owner
        return _new(address, _NAME, ctypes.cast(_end_capsule, ctypes.c_void_p))


def take(ptr, shape, dtype, device, owner):
    """An array over memory of `device`, which keeps `owner`."""
    return jax.dlpack.from_dlpack(_Memory(ptr, shape, dtype, device, owner), device, copy=False)
