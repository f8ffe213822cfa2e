"""horovod.mxnet.compression: hvd.mxnet.compression.  Re-exports only."""

from hvd.mxnet.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
