"""Does the unfinished shards of a job: in this process, in workers of this machine, or on a cluster."""

from collections.abc import Generator
from contextlib import closing

from nmt import console
from nmt.config import JobConfig
from nmt.errors import NmtError
from nmt.jobs.folder import JobFolder
from nmt.jobs.local import Outcome, do_shards
from nmt.jobs.plan import Shard
from nmt.jobs.work import Job

_NAMED_SHARDS = 3  # in a message


def finish_shards(
    job: Job, folder: JobFolder, options: JobConfig, workers: int | None, progress: console.Progress
) -> None:
    """Does all shards of the job that are not finished, or those of the part that --shard names.

    Raises:
        NmtError: the input or a model cannot be read, or shards failed. Finished shards are kept.
    """
    part, parts = options.part
    todo = list(folder.todo(part, parts))
    of_part = folder.plan.rows_of(part, parts)
    progress.begin(of_part, of_part - sum(shard.rows for shard in todo))
    if progress.completed:
        console.info(f"resuming after {progress.completed:,} of {console.counted(of_part, progress.unit)}")
    if options.shard:
        console.info(f"{options.shard}: {len(todo):,} of {console.counted(len(folder.plan), 'shard')} to do")
    if not todo:
        return
    failures = []
    with closing(_outcomes(job, folder, todo, options, workers, progress)) as outcomes:
        for outcome in outcomes:
            if outcome.failure:
                failures.append(outcome)
                console.warn(f"{folder.plan.named(outcome.shard)} failed: {outcome.failure}; the rest goes on")
            elif outcome.result:
                folder.add(outcome.shard, outcome.result)
    folder.check_input()
    if failures:
        raise NmtError(_failed(folder, failures))


def _outcomes(
    job: Job,
    folder: JobFolder,
    todo: list[Shard],
    options: JobConfig,
    workers: int | None,
    progress: console.Progress,
) -> Generator[Outcome, None, None]:
    if options.cluster:
        from nmt.jobs.ray_driver import do_on_cluster

        return do_on_cluster(job, folder, todo, options, workers, progress)
    return do_shards(job, folder.plan.paths, iter(todo), workers or 1, progress.advance)


def _failed(folder: JobFolder, failures: list[Outcome]) -> str:
    """Returns the sentence about a job of which some shards failed."""
    named = ", ".join(folder.plan.named(outcome.shard) for outcome in failures[:_NAMED_SHARDS])
    more = ", …" if len(failures) > _NAMED_SHARDS else ""
    return (
        f"{len(failures):,} of {console.counted(len(folder.plan), 'shard')} failed ({named}{more}: "
        f"{failures[0].failure}); the others are kept in {folder.path}, and the same command does only these again"
    )
