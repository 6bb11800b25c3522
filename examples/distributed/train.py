"""Data-parallel training with PyTorch. Turnout sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, as torchrun does."""

import os

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(50):
    x = torch.randn(64, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} of {world}: loss {loss.item():.4f}", flush=True)
dist.barrier()  # the others are ended with the first replica
os._exit(0)  # gloo's threads can abort a process that ends the usual way
