"""The commands of `turnout` that create and change jobs."""

from typing import Annotated

import typer

from turnout.cli import complete, help
from turnout.cli.options import Endpoint, Form, Job, JobCluster, Jobs, Output, Project

Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="show its log until it ends; exit with 0 only if it succeeds")
]


def add(app: typer.Typer) -> None:
    @help.command(
        app,
        "submit",
        """
        turnout submit custom-job.yaml --follow
        turnout submit create-training-job.json --name second
        """,
    )
    def submit(
        file: Annotated[str, typer.Argument(metavar="FILE")],
        name: Annotated[str, typer.Option("--name", help="name of the job (default: the one in FILE)")] = "",
        location: Annotated[str, typer.Option("--location", help="location of a Vertex job")] = "",
        follow: Follow = False,
        project: Project = "",
        endpoint: Endpoint = None,
        output: Output = Form.TABLE,
    ) -> None:
        """Create a job from a file of any API, JSON or YAML, recognised by its content. `-` is standard input.

        A Vertex CustomJob, CustomJobSpec or HyperparameterTuningJob, a ModelArts training job, or a TI-A CreateJob
        request.
        """
        from turnout.cli import submit

        submit.submit(file, name, location, follow, project, endpoint, output)

    @help.command(
        app,
        "clone",
        """
        turnout clone test-job
        turnout clone train --set jobSpec.workerPoolSpecs.0.replicaCount=4
        turnout clone train --api modelarts --follow
        """,
    )
    def clone(
        job: Job,
        name: Annotated[
            str, typer.Option("--name", help="its name (default: the old one with a number)")
        ] = "",
        api: Annotated[
            str,
            typer.Option(
                "--api", help="tia, modelarts or vertex, if not the job's own", autocompletion=complete.apis
            ),
        ] = "",
        settings: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="path=value", help="change a field of its document; repeatable"),
        ] = None,
        follow: Follow = False,
        cluster: JobCluster = "",
        project: Project = "",
        endpoint: Endpoint = None,
        output: Output = Form.TABLE,
    ) -> None:
        """Create a job again, with changes, or as a job of another API. JOB is a name, a number or a UUID."""
        from turnout.cli import submit

        wanted = submit.CloneOptions(name, api, settings or [])
        submit.clone(job, wanted, cluster, follow, project, endpoint, output)

    @help.command(app, "priority", "turnout priority urgent-job --to 3")
    def priority(
        jobs: Jobs,
        to: Annotated[int, typer.Option("--to", help="1, 2 or 3; larger starts first", min=1, max=3)],
        cluster: JobCluster = "",
        project: Project = "",
        endpoint: Endpoint = None,
        output: Output = Form.TABLE,
    ) -> None:
        """Change the priority of jobs that have not ended. JOB is a name, a number or a UUID."""
        from turnout.cli import changes

        changes.priority(jobs, to, cluster, project, endpoint, output)

    @help.command(app, "stop", "turnout stop test-job --project vision")
    def stop(
        jobs: Jobs,
        cluster: JobCluster = "",
        project: Project = "",
        endpoint: Endpoint = None,
        output: Output = Form.TABLE,
    ) -> None:
        """Stop jobs of any API. JOB is a name, a number or a UUID."""
        from turnout.cli import changes

        changes.stop(jobs, cluster, project, endpoint, output)

    @help.command(app, "delete", "turnout delete 1846031847234928640")
    def delete(
        jobs: Jobs,
        cluster: JobCluster = "",
        project: Project = "",
        endpoint: Endpoint = None,
        output: Output = Form.TABLE,
    ) -> None:
        """Delete jobs of any API; running ones are stopped first. JOB is a name, a number or a UUID."""
        from turnout.cli import changes

        changes.delete(jobs, cluster, project, endpoint, output)
