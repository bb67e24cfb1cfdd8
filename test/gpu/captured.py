"""A training step captured as a CUDA graph: what gpu_train.py and gpu_pools.py have in common.

To be imported after CUBLAS_WORKSPACE_CONFIG is set, since it imports torch.
"""
import torch


def captured(model, given):
    """A function of an input like @given: the step on it, replayed; it returns the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(given).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()

    def one(x):
        given.copy_(x)
        graph.replay()
        return loss.clone()
    return one
