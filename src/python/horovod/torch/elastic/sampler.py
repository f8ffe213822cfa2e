"""horovod.torch.elastic.sampler."""

from hvd.torch.elastic import ElasticSampler as ElasticSampler

__all__ = ["ElasticSampler"]
