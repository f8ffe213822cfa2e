"""What elastic jobs keep: states, their files, shares of a global batch.  The public part is hvd.elastic."""
