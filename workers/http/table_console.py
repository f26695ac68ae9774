"""The table of the API, of what the console is made of, and shows."""

from barco.workers.http.base.routes import RECENT, Parameter, Route

CONSOLE_ROUTES = (
    Route(
        "GET",
        "/",
        "console.home",
        "Where the console is.",
        "administration",
        answers={302: "At /console."},
        kinds=("text/html",),
    ),
    Route(
        "GET",
        "/console",
        "console.page",
        "A page for people: the ring, topics and their events, groups.",
        "administration",
        answers={200: "The page.", 304: "As it was."},
        kinds=("text/html",),
    ),
    Route(
        "GET",
        "/console/{file}",
        "console.file",
        "A file of the console.",
        "administration",
        answers={200: "The file.", 304: "As it was.", 404: "No such file."},
        kinds=("text/html", "text/javascript", "text/css", "image/svg+xml"),
    ),
    Route(
        "GET",
        "/v1/health",
        "console.health",
        "How the cluster is, in words: headline, what is wrong, notes.",
        "administration",
        (RECENT,),
        answers={200: "As this broker sees it."},
        shape="health",
        shared=True,
    ),
    Route(
        "GET",
        "/v1/figures",
        "console.figures",
        "A few figures of each broker, as its processes count them.",
        "administration",
        (RECENT,),
        answers={200: "Of each broker that is known; silent: processes that did not answer."},
        shape="figures",
        shared=True,
    ),
    Route(
        "GET",
        "/v1/figures/hour",
        "console.hour",
        "How some of them were in the last hour.",
        "administration",
        (Parameter("broker", "Of this one alone: its ordinal.", kind="integer"), RECENT),
        answers={
            200: "In steps, of the processes that answered, since they began.",
            404: "There is no such broker.",
        },
        shape="hour",
        shared=True,
    ),
)
"""Part of ROUTES."""
