"""--agreement: the comparison of tensors between ranks.  Each framework has its own way to its tensors."""
