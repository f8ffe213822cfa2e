"""hvd.torch and horovod.torch: one launch on two ranks, and one on three for checks that depend on the number."""

import pytest

from python.harness import checks_of

OPTIMIZER = (
    "torch_optimizer.py",
    "torch_outbox.py",
    "torch_direct.py",
    "torch_changing.py",
    "torch_second_passes.py",
    "torch_optimizer_state.py",
    "torch_registered.py",
    "torch_sizes.py",
    "torch_scaling.py",
)
MANY = (
    "torch_operations.py",
    "torch_handles.py",
    "torch_exchanges.py",
    "torch_arguments.py",
    "torch_batch_norm.py",
    *OPTIMIZER,
)
# The first of these begins with an init() that fails.
TWO = (
    "torch_scripts.py",
    *MANY,
    "torch_adasum_optimizer.py",
    "torch_training.py",
    "torch_beyond.py",
    "torch_elastic.py",
    "torch_global_batch.py",
    "torch_full_graph.py",
    "snippets_torch.py",
)

test_two_ranks = checks_of(*TWO, ranks=2, needs=("torch",))
test_three_ranks = pytest.mark.ci(checks_of(*MANY, ranks=3, needs=("torch",)))
test_three_ranks_beyond_horovod = pytest.mark.nightly(
    checks_of("torch_beyond.py", "torch_elastic.py", ranks=3, needs=("torch",))
)
test_examples = pytest.mark.ci(checks_of("torch_examples.py", ranks=2, needs=("torch", "sklearn")))
# Half a minute of compiling; with a compiler without machine code it is among the others.
test_compiled = pytest.mark.nightly(checks_of("torch_compiled.py", ranks=2, needs=("torch",)))
test_full_graphs = pytest.mark.ci(checks_of("torch_full_graphs.py", ranks=2, needs=("torch",)))
# Compiling machine code takes minutes on a busy machine.
test_full_graphs_in_machine_code = pytest.mark.nightly(
    checks_of("torch_full_graph.py", "torch_full_graphs.py", ranks=2, needs=("torch",), CHECK_COMPILER="inductor")
)
test_process_groups_of_two = pytest.mark.ci(
    checks_of(
        *("torch_groups.py", "torch_group_messages.py", "torch_group_memory.py", "torch_group_errors.py"),
        ranks=2,
        needs=("torch",),
    )
)
test_process_groups_of_four = checks_of(
    "torch_groups.py", "torch_group_messages.py", "torch_group_errors.py", ranks=4, needs=("torch",)
)
test_process_group_users = checks_of("torch_group_users.py", ranks=2, needs=("torch",))
test_process_group_users_of_four = pytest.mark.nightly(checks_of("torch_group_users.py", ranks=4, needs=("torch",)))

AGREEMENT = {"HVD_AGREEMENT": "stop", "HVD_AGREEMENT_STEPS": "4"}
test_agreement_of_three = checks_of("torch_agreement.py", ranks=3, needs=("torch",), **AGREEMENT)
REPAIR = {"HVD_AGREEMENT": "repair", "HVD_AGREEMENT_STEPS": "4"}
test_repair = pytest.mark.ci(checks_of("torch_repair.py", ranks=3, needs=("torch",), **REPAIR))
test_agreement_of_two = pytest.mark.ci(checks_of("torch_agreement.py", ranks=2, needs=("torch",), **AGREEMENT))

test_one_rank = checks_of("torch_one_rank.py", ranks=1, needs=("torch",))
