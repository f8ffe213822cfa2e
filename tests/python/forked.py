"""A rank for test_world.py: trains while torch's DataLoader forks workers, one of which calls hvd."""

import faulthandler
import os
import warnings

import torch

import hvd.torch as hvd

faulthandler.dump_traceback_later(100, exit=True)
warnings.filterwarnings("ignore")


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        said = f"rank {hvd.rank()} of {hvd.size()}"  # queries of samplers work
        try:
            hvd.allreduce(torch.ones(3))
            said = "no error"
        except ValueError as error:
            said += f": {error}"
        return torch.full((10,), float(index)), said


hvd.init()
model = torch.nn.Linear(10, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-4), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(3):  # each makes and ends two children
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for batch, said in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        assert all("fork" in text and f"rank {hvd.rank()} of" in text for text in said), said
child = os.fork()
if child == 0:
    hvd.shutdown()  # does nothing here
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert hvd.allreduce(torch.ones(5), op=hvd.Sum)[0] == hvd.size()
os.write(1, f"#fine {hvd.rank()}\n".encode())
