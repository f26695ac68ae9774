"""The replication data path of a worker: one replica of one shard range, and its two peers.

| module | what it does |
|---|---|
| `wire` | frames of a connection between replicas |
| `link` | one outgoing connection to a peer: dialled again and again, bounded, never waited for |
| `logs` | where a peer's group goes: into the core, or into an older generation's files |
| `journal` | the machine's records, on the disk before anything that depends on them leaves |
| `driver` | runs the machine: messages, disks and clocks in, effects out |
"""
