"""Samples of Java Flight Recorder, as `jfr print` writes them, count for the step that their stack has."""

from __future__ import annotations

from bench.spark_profile import OTHER, STEPS, page, shares

SAMPLE = """jdk.ExecutionSample {
  startTime = 23:59:01.123
  sampledThread = "%s" (javaThreadId = 71)
  state = "STATE_RUNNABLE"
  stackTrace = [
    %s
    ...
  ]
}

"""
TASK = "Executor task launch worker for task 0.0 in stage 1.0 (TID 1)"


def sample(frame: str, thread: str = TASK) -> str:
    return SAMPLE % (thread, frame)


def test_each_sample_counts_for_one_step() -> None:
    text = (
        sample("org.apache.spark.sql.catalyst.expressions.codegen.UnsafeWriter.write(int) line: 63")
        + sample("org.apache.arrow.vector.ipc.message.MessageSerializer.read() line: 1")
        + sample("sun.nio.ch.SocketDispatcher.read0(FileDescriptor) line: 0").replace("Execution", "NativeMethod", 1)
        + sample("java.util.HashMap.get(Object) line: 5")
        + sample("org.apache.spark.Something.run() line: 9", thread="dispatcher-0")
    )
    names = [name for name, _ in STEPS]
    assert dict(shares(text)) == {names[2]: 1, names[1]: 1, names[0]: 1, OTHER: 1}


def test_the_page_has_the_share_of_each_step() -> None:
    text = page(shares(sample("sun.nio.ch.Net.poll() line: 1") * 3 + sample("java.lang.Thread.run() line: 1")))
    assert "75.0%" in text and "25.0%" in text and "4 samples" in text
