"""The names of Horovod 0.28 that scripts use, with their signatures, and a comparison with what this package has.

Run by an interpreter with the framework: horovod_names.py MODULE... prints JSON, {module: [what is wrong]}.
Ours may take more arguments, behind Horovod's.  An absent default is written `name`, one without a literal `name=...`.
"""

import importlib
import inspect
import json
import sys

QUERIES = (
    "init(comm=None, process_sets=None) shutdown() is_initialized() start_timeline(file_path, mark_cycles=False) "
    "stop_timeline() rank() size() local_rank() local_size() cross_rank() cross_size() is_homogeneous() "
    "mpi_threads_supported() mpi_enabled() mpi_built(verbose=False) gloo_enabled() gloo_built(verbose=False) "
    "nccl_built(verbose=False) ddl_built(verbose=False) ccl_built(verbose=False) cuda_built(verbose=False) "
    "rocm_built(verbose=False) sycl_built(verbose=False)"
)
SETS = "ProcessSet(ranks_or_comm) global_process_set add_process_set(process_set) remove_process_set(process_set)"
OPS = "Average Sum Adasum Min Max Product"
ONE = "(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=...)"
MANY = ONE.replace("tensor,", "tensors,")
GATHER = "(tensor, name=None, process_set=...)"
CAST = "(tensor, root_rank, name=None, process_set=...)"
TORCH_OPERATIONS = (
    f"{OPS} {QUERIES} {SETS} "
    "allreduce(tensor, average=None, name=None, compression=..., op=None, prescale_factor=1.0, postscale_factor=1.0, "
    f"process_set=...) allreduce_async{ONE} allreduce_{ONE} allreduce_async_{ONE} "
    "grouped_allreduce(tensors, average=None, name=None, compression=..., op=None, prescale_factor=1.0, "
    f"postscale_factor=1.0, process_set=...) grouped_allreduce_async{MANY} grouped_allreduce_{MANY} "
    f"grouped_allreduce_async_{MANY} sparse_allreduce_async(tensor, name, op, process_set=...) "
    f"allgather{GATHER} allgather_async{GATHER} grouped_allgather(tensors, name=None, process_set=...) "
    f"grouped_allgather_async(tensors, name=None, process_set=...) broadcast{CAST} broadcast_async{CAST} "
    f"broadcast_{CAST} broadcast_async_{CAST} alltoall(tensor, splits=None, name=None, process_set=...) "
    "alltoall_async(tensor, splits=None, name=None, process_set=...) "
    "reducescatter(tensor, name=None, compression=..., op=..., process_set=..., prescale_factor=1.0, postscale_factor=1.0) "
    "reducescatter_async(tensor, name=None, op=..., process_set=..., prescale_factor=1.0, postscale_factor=1.0) "
    "grouped_reducescatter(tensors, name=None, compression=..., op=..., process_set=..., prescale_factor=1.0, "
    "postscale_factor=1.0) "
    "grouped_reducescatter_async(tensors, name=None, op=..., process_set=..., prescale_factor=1.0, postscale_factor=1.0) "
    "join(device=-1) barrier(process_set=...) poll(handle) synchronize(handle)"
)
TORCH_FUNCTIONS = (
    "broadcast_object(obj, root_rank=0, name=None, process_set=...) allgather_object(obj, name=None) "
    "broadcast_parameters(params, root_rank) broadcast_optimizer_state(optimizer, root_rank, model=None)"
)
TORCH_OPTIMIZER = (
    "DistributedOptimizer(optimizer, named_parameters=None, compression=..., backward_passes_per_step=1, op=..., "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=...)"
)
TORCH_NORM = "SyncBatchNorm(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
DENSE = "device_dense='', device_sparse='', compression=..., "
TF_FUNCTIONS = (
    "broadcast_variables(variables, root_rank, process_set=..., inplace=False) "
    "broadcast_object(obj, root_rank=0, session=None, name=None, process_set=...) "
    "broadcast_object_fn(root_rank=0, session=None, name=None, process_set=...) "
    "allgather_object(obj, session=None, name=None, process_set=...)"
)
TF_OPERATIONS = (
    f"{OPS} {QUERIES} {SETS} join() allgather(tensor, name=None, ignore_name_scope=False, process_set=...) "
    "grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=...) "
    "broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=...) "
    "broadcast_(variables, root_rank, name=None, process_set=...) "
    "alltoall(tensor, splits=None, name=None, ignore_name_scope=False, process_set=...) "
    "size_op(process_set_id=0, name=None) rank_op(name=None) local_size_op(name=None) local_rank_op(name=None) "
    "process_set_included_op(process_set_id=0, name=None)"
)
TF_TAPE = (
    f"(gradtape, {DENSE}sparse_as_dense=False, op=..., gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    "process_set=..., "
)
KERAS_OPTIMIZER = f"(optimizer, name=None, {DENSE}sparse_as_dense=False, gradient_predivide_factor=1.0, op=..., "
KERAS = (
    f"{QUERIES} Average Sum Compression global_process_set callbacks elastic broadcast_global_variables(root_rank) "
    "allgather(value, name=None) broadcast(value, root_rank, name=None) reducescatter(value, name=None, op=...) "
    "load_model(filepath, custom_optimizers=None, custom_objects=None, compression=..., legacy_opts=False) "
    "allreduce(value, name=None, average=..., prescale_factor=1.0, postscale_factor=1.0, op=None, compression=...)"
)
KERAS_CALLBACKS = (
    "BroadcastGlobalVariablesCallback(root_rank, device='', local_variables=None) MetricAverageCallback(device='') "
    "LearningRateScheduleCallback(initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, "
    "momentum_correction=True, steps_per_epoch=None) "
    "LearningRateWarmupCallback(initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0) "
)
KERAS_ELASTIC = (
    "KerasState(model, optimizer=None) CommitStateCallback(state, batches_per_commit=1) UpdateBatchStateCallback(state) "
    "UpdateEpochStateCallback(state) run(func)"
)
RUN = (
    "run(func, args=(), kwargs=None, num_proc=..., min_num_proc=None, max_num_proc=None, slots=None, reset_limit=None, "
    "cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, start_timeout=None, ssh_port=None, "
    "ssh_identity_file=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None, "
    "mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None, min_np=None, max_np=None)"
)
LOADER = "BaseDataLoader AsyncDataLoaderMixin(async_loader_queue_size=64, debug_data_loader=False)"

PLAIN = {
    "horovod": f"__version__ {RUN}",
    "horovod.runner": RUN,
    "horovod.runner.launch": "run_commandline()",
    "horovod.runner.common.util.env": "get_env_rank_and_size()",
    "horovod.runner.common.util.secret": "make_secret_key() compute_digest(key, message) check_digest(key, message, digest) "
    "HOROVOD_SECRET_KEY",
    "horovod.runner.common.util.timeout": "TimeoutException Timeout(timeout, message)",
    "horovod.runner.util.threads": "in_thread(target, args=(), name=None, daemon=True, silent=False) "
    "on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False) "
    "execute_function_multithreaded(fn, args_list, block_until_all_done=True, max_concurrent_executions=1000)",
    "horovod.data": LOADER,
    "horovod.data.data_loader_base": LOADER,
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.elastic": "State(bcast_object, get_rank) ObjectState(bcast_object, get_rank) run_fn(func, reset) "
    "HorovodInternalError HostsUpdatedInterrupt",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt(skip_sync) "
    "HorovodVersionMismatchError(name, version, installed_version) "
    "get_version_mismatch_message(name, version, installed_version)",
    "horovod.common.process_sets": SETS,
    "horovod.common.util": "EXTENSIONS get_ext_suffix() check_extension(ext_name) "
    "extension_available(ext_base_name, verbose=False) gpu_available(ext_base_name, verbose=False) "
    "mpi_built(verbose=False) gloo_built(verbose=False) nccl_built(verbose=False) ddl_built(verbose=False) "
    "ccl_built(verbose=False) env() get_average_backwards_compatibility_fun(reduce_ops) num_rank_is_power_2(num_rank) "
    "split_list(l, n) check_installed_version(name, version, exception=None) is_iterable(x) "
    "is_version_greater_equal_than(ver, target)",
}
TORCH = {
    "horovod.torch": f"{TORCH_OPERATIONS} {TORCH_FUNCTIONS} {TORCH_OPTIMIZER} {TORCH_NORM} Compression elastic "
    "HorovodInternalError check_extension mpi_ops compression functions optimizer sync_batch_norm",
    "horovod.torch.mpi_ops": f"{TORCH_OPERATIONS} Compression HorovodInternalError gpu_available num_rank_is_power_2 "
    "check_installed_version handle_average_backwards_compatibility",
    "horovod.torch.functions": TORCH_FUNCTIONS,
    "horovod.torch.optimizer": f"{TORCH_OPTIMIZER} _DistributedOptimizer",
    "horovod.torch.sync_batch_norm": TORCH_NORM,
    "horovod.torch.compression": "Compressor NoneCompressor FP16Compressor Compression",
    "horovod.torch.elastic": "run(func) run_fn(func, reset) "
    "TorchState(model=None, optimizer=None) ElasticSampler(dataset, shuffle=True, seed=0)",
    "horovod.torch.elastic.state": "TorchState(model=None, optimizer=None)",
    "horovod.torch.elastic.sampler": "ElasticSampler(dataset, shuffle=True, seed=0)",
}
TENSORFLOW = {
    "horovod.tensorflow": f"{TF_OPERATIONS} {TF_FUNCTIONS} Compression elastic HorovodInternalError check_extension "
    "_executing_eagerly() util mpi_ops split_list gpu_available handle_average_backwards_compatibility "
    "check_num_rank_power_of_2 _DistributedOptimizer "
    f"allreduce(tensor, average=None, {DENSE}op=None, prescale_factor=1.0, postscale_factor=1.0, name=None, "
    "process_set=..., ignore_name_scope=False) "
    f"grouped_allreduce(tensors, average=None, {DENSE}op=None, prescale_factor=1.0, postscale_factor=1.0, "
    "process_set=..., ignore_name_scope=False, name=None) "
    "reducescatter(tensor, device_dense='', compression=..., op=..., name=None, process_set=..., ignore_name_scope=False, "
    "prescale_factor=1.0, postscale_factor=1.0) "
    "grouped_reducescatter(tensors, device_dense='', compression=..., op=..., process_set=..., prescale_factor=1.0, "
    "postscale_factor=1.0) broadcast_global_variables(root_rank) "
    f"BroadcastGlobalVariablesHook(root_rank, device='') DistributedOptimizer(optimizer, name=None, use_locking=False, {DENSE}"
    "sparse_as_dense=False, backward_passes_per_step=1, op=..., gradient_predivide_factor=1.0, "
    "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=..., scale_local_gradients=True) "
    f"DistributedGradientTape{TF_TAPE}scale_local_gradients=True) "
    f"PartialDistributedGradientTape{TF_TAPE}local_layers=None, scale_local_gradients=True) "
    "SyncBatchNormalization(fused=False)",
    "horovod.tensorflow.mpi_ops": f"{TF_OPERATIONS} check_num_rank_power_of_2 handle_average_backwards_compatibility "
    "_allreduce(tensor, name=None, op=..., prescale_factor=1.0, postscale_factor=1.0, ignore_name_scope=False, "
    "process_set=...)",
    "horovod.tensorflow.functions": TF_FUNCTIONS,
    "horovod.tensorflow.util": "_executing_eagerly() _make_subgraph(f) _cache(f) vars_to_refs(vars) refs_to_vars(refs)",
    "horovod.tensorflow.compression": "Compressor NoneCompressor FP16Compressor Compression",
    "horovod.tensorflow.sync_batch_norm": "SyncBatchNormalization(fused=False)",
    "horovod.tensorflow.elastic": "run(func) run_fn(func, reset) "
    "TensorFlowState(variables=None, session=None) "
    "TensorFlowKerasState(model, optimizer=None, backend=None)",
    "horovod.keras": f"{KERAS} Adasum DistributedOptimizer{KERAS_OPTIMIZER}num_groups=0, groups=None) "
    f"PartialDistributedOptimizer{KERAS_OPTIMIZER}groups=None, process_set=..., local_layers=None, "
    "scale_local_gradients=True)",
    "horovod.tensorflow.keras": f"{KERAS} {SETS} DistributedOptimizer{KERAS_OPTIMIZER}backward_passes_per_step=1, "
    "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=..., scale_local_gradients=True)",
    "horovod.keras.callbacks": KERAS_CALLBACKS + "BestModelCheckpoint(monitor='val_loss', verbose=0, mode='auto')",
    "horovod.tensorflow.keras.callbacks": KERAS_CALLBACKS
    + "BestModelCheckpoint(monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch')",
    "horovod.keras.elastic": KERAS_ELASTIC,
    "horovod.tensorflow.keras.elastic": KERAS_ELASTIC,
}
STORE = (
    "(prefix_path, train_path=None, val_path=None, test_path=None, runs_path=None, save_runs=True, storage_options=None, "
    "checkpoint_filename=None)"
)
SPARK = {
    "horovod.spark": "run(fn, args=(), kwargs=..., num_proc=None, start_timeout=None, use_mpi=None, use_gloo=None, "
    "extra_mpi_args=None, env=None, stdout=None, stderr=None, verbose=1, nics=None, prefix_output_with_timestamp=False, "
    "executable=None) run_elastic",
    "horovod.spark.common.backend": "Backend() SparkBackend(num_proc=None, env=None) default_num_proc()",
    "horovod.spark.common.datamodule": "DataModule(train_dir, val_dir, num_train_epochs=1, has_val=True, train_batch_size=32, "
    "val_batch_size=32, shuffle=True, transform_fn=None, inmemory_cache_all=False, cur_shard=0, shard_count=1, "
    "schema_fields=None, storage_options=None, steps_per_epoch_train=1, steps_per_epoch_val=1, verbose=True)",
    "horovod.spark.common.util": "prepare_data(num_processes, store, df, label_columns, feature_columns, validation=None, "
    "sample_weight_col=None, compress_sparse=False, partitions_per_process=10, verbose=0)",
    "horovod.spark.common.store": f"Store{STORE} FilesystemStore{STORE} LocalStore DBFSLocalStore "
    "HDFSStore(prefix_path, host=None, port=None, user=None, kerb_ticket=None, driver='libhdfs', extra_conf=None)",
    "horovod.spark.keras": "KerasEstimator() KerasModel",
    "horovod.spark.torch": "TorchEstimator() TorchModel",
    "sparkdl": "HorovodRunner(np, driver_log_verbosity='all') HorovodEstimator",
    "sparkdl.horovod": "log_to_driver(message)",
    "sparkdl.horovod.runner_base": "HorovodRunner",
    "sparkdl.horovod.tensorflow.keras": "LogCallback(per_batch_log=False)",
}
# Keyword arguments behind those of another version of Horovod: only that they exist counts.
UNORDERED = {"BestModelCheckpoint", "DistributedOptimizer", "PartialDistributedOptimizer"}


def names_of(text):
    """(name, parameters or None) of "a b(x, y=1) c()"."""
    found, at = [], 0
    while at < len(text):
        end = at
        depth = 0
        while end < len(text) and (depth or text[end] != " "):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        word, at = text[at:end], end + 1
        if word:
            name, bracket, rest = word.partition("(")
            found.append((name, rest[:-1] if bracket else None))
    return found


def theirs(parameters):
    """[(name, default)], the default as it is written; None without one."""
    probe = {}
    exec(f"def f({parameters}): pass", probe)
    return [(p.name, p.default) for p in inspect.signature(probe["f"]).parameters.values()]


def wrong_signature(name, ours, parameters):
    wanted = theirs(parameters)
    have = list(inspect.signature(ours).parameters.values())
    takes_any = any(p.kind is p.VAR_KEYWORD for p in have)
    plain = [p for p in have if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    by_name = {p.name: p for p in have}
    problems = []
    for index, (parameter, default) in enumerate(wanted):
        if parameter not in by_name:
            if not takes_any:
                problems.append(f"{name}: no parameter {parameter}")
            continue
        if name not in UNORDERED and (index >= len(plain) or plain[index].name != parameter):
            problems.append(f"{name}: {parameter} is not parameter {index}")
        mine = by_name[parameter].default
        if default is inspect.Parameter.empty:
            continue  # ours may have one
        if mine is inspect.Parameter.empty:
            problems.append(f"{name}: {parameter} has no default")
        elif default is not ... and mine != default:
            problems.append(f"{name}: {parameter} is {mine!r}, not {default!r}, by default")
    for p in plain[len(wanted) :]:
        if p.default is p.empty:
            problems.append(f"{name}: needs {p.name}")
    return problems


def problems_of(module, text):
    try:
        package = importlib.import_module(module)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    problems = []
    for name, parameters in names_of(text):
        if not hasattr(package, name):
            problems.append(f"{name} is missing")
        elif parameters is not None:
            problems += wrong_signature(name, getattr(package, name), parameters)
    return problems


if __name__ == "__main__":
    tables = {**PLAIN, **TORCH, **TENSORFLOW, **SPARK}
    print(json.dumps({module: problems_of(module, tables[module]) for module in sys.argv[1:]}))
