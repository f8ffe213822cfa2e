"""The meeting of a compute job and the training job that gets its data: service, key, configuration file."""
