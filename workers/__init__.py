"""The worker process: one per core, pinned, one event loop, one shard; it is barco.workers."""

# The directory sits at the top of the repository, but the package is barco.workers: imported
# under any other name it would carry a second copy of every module's state.
assert __name__ == "barco.workers", f"import barco.workers, not {__name__}"
