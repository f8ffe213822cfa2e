"""Estimators: stages of a Spark ML pipeline that train a torch or Keras model on ranks."""
