"""horovod.tensorflow.compression: hvd.tensorflow.compression."""

from hvd.tensorflow.compression import BF16Compressor, Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
