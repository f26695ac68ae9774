"""The part of the API's table that is about how large the cluster shall be."""

from barco.workers.http.base.routes import Parameter, Route

GROWING_ROUTES = (
    Route(
        "PUT",
        "/v1/topology",
        "growing.put",
        "Say of which brokers the cluster shall consist. Compare and set: version is that of the "
        "target as it was seen. The same brokers again are no change, so it may be repeated.",
        "administration",
        body={
            "application/json": {
                "type": "object",
                "required": ["cluster", "version", "brokers"],
                "properties": {
                    "cluster": {"type": "string", "description": "As GET tells it."},
                    "version": {
                        "type": "integer",
                        "description": "Of the target that was seen; 0: none was ever set.",
                    },
                    "brokers": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ordinal", "workers"],
                            "properties": {
                                "ordinal": {"type": "integer"},
                                "workers": {
                                    "type": "integer",
                                    "description": "Into how many ranges its part is divided.",
                                },
                                "host": {"type": "string"},
                                "diskUuid": {
                                    "type": "string",
                                    "description": "Refuse if the ordinal has another disk.",
                                },
                            },
                        },
                    },
                },
            }
        },
        answers={
            200: "The target, durable; each leader takes its steps from now on.",
            400: "No ring has these brokers, or so many processes; the largest that goes is said.",
            403: "The caller means another cluster.",
            409: "Another version was seen, the last target is not reached, or a disk is another.",
            415: "The body is not JSON.",
            503: "Nobody leads slice 0, where it is kept.",
        },
        shape="target",
    ),
    Route(
        "GET",
        "/v1/drains",
        "growing.drains",
        "Brokers that are not in the target: whether all that they hold is elsewhere as well, what "
        "is still being copied, and for what it waits.",
        "administration",
        (Parameter("without", "Ordinals, with commas between: as if these had left as well."),),
        answers={200: "Each of them.", 503: "Nobody leads slice 0, where the target is kept."},
        shape="drains",
    ),
)
