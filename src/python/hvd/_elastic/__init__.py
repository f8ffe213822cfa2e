"""The data of elastic jobs: states, their files, shares of a global batch.  The public part is hvd.elastic."""
