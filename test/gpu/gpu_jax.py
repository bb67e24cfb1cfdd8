"""JAX on a GPU: compiled functions, a gradient step, memory as XLA asks for it.

Prints only what is the same from run to run; see gpu_torch.py.
"""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


@jax.jit
def loss(weights, x):
    hidden = jnp.tanh(x @ weights[0])
    return jnp.mean((hidden @ weights[1] - x) ** 2)


def main():
    assert jax.default_backend() == "gpu", jax.default_backend()
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    weights = [jax.random.normal(keys[0], (256, 512)) * 0.05, jax.random.normal(keys[1], (512, 256)) * 0.05]
    x = jax.random.normal(keys[2], (128, 256))
    step = jax.jit(jax.value_and_grad(loss))
    for i in range(5):
        value, gradient = step(weights, x)
        weights = [w - 0.5 * g for w, g in zip(weights, gradient)]
        print("step %d loss %.4f" % (i, float(value)))
    print("sum", float(jnp.arange(100000.0).sum()))
    print("gpu_jax: done")


if __name__ == "__main__":
    main()
