"""Files of a shard: where they are, how they come to be, and what is believed after a crash.

| module | what it does |
|---|---|
| `layout` | paths, broker.json, the lock, checks of a data directory |
| `bulk` | disk work off the append path: aligned buffers, `pyuring` or threads |
| `segment` | segment files: preallocated, zero-filled and renamed before an append sees them |
| `lineage` | the journal of a shard: the machine's records, and what was sealed, lost, expired |
| `scan` | pure: walks append groups, tells the end, a torn tail and corruption apart |
| `recovery` | the walk over a generation's files and what becomes of its end; giving up damage |
| `loading` | how history comes into the core: as its newest log, or as state alone |
| `index` | sidecars: (topic, slice, offset or time) -> chunk positions; rebuilt when missing |
| `catalog` | which segments hold a (topic, slice), over all generations |
| `reader` | stored chunks of a (topic, slice) from an offset on, verified |
| `replicas` | all of it behind one object: what the worker talks to |
| `trash` | deletes in two steps: renamed at once, unlinked later |
| `rebuild` | pure: the summary or the index of one sealed segment, from its groups |
| `errors` | failures as one sentence that names the file and says what to do |
| `retention` | deletes whole sealed segments by age and size |

Appends themselves are the native core's: it owns the open segment's descriptor.
"""
