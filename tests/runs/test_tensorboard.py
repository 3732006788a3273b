"""The TensorBoard callback writes what the events say."""

from __future__ import annotations

import sys

import pytest
from tensorboardX.proto.event_pb2 import Event

import tasid
from tasid.runs.tensorboard import TensorBoard


def scalars(folder):
    """Read the records: length, its checksum, an event, its checksum."""
    (file,) = folder.glob("events*")
    data, found = file.read_bytes(), {}
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_events_become_scalars(lock, tmp_path):
    board = TensorBoard(tmp_path)
    result = tasid.learn(lock, eta=0.1, episodes=200, seed=3, method="paper", callbacks=[board])
    board.close()
    found = scalars(tmp_path)
    steps = result.diagnostics.steps
    losses = [value for _, value in found["seed-3/step/validation_loss"]]
    assert losses == pytest.approx([step.validation_loss for step in steps])
    epochs = found["seed-3/epoch/training_loss"]
    assert [count for count, _ in epochs] == list(range(sum(step.epochs for step in steps)))


def test_batches_become_scalars_too(lock, tmp_path):
    board = TensorBoard(tmp_path)
    result = tasid.learn(lock, eta=0.1, episodes=64, seed=7, callbacks=[board])
    board.close()
    found = scalars(tmp_path)["seed-7/batch/return_mean"]
    batches = result.diagnostics.batches
    assert [count for count, _ in found] == [batch.episodes for batch in batches]
    assert [value for _, value in found] == pytest.approx([b.return_mean for b in batches])


def test_without_the_package_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"install tasid\[tensorboard\]"):
        TensorBoard(tmp_path)
