import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.recommender.baselines import PaddedSASRec
from examples.recommender.data import Rows
from examples.recommender.model import NextItemModel, following, hstu_encoder, past_items
from examples.recommender.settings import Settings
from examples.recommender.train import parameter_groups
from jagged import JaggedTensor
from jagged.modules import HSTUStack

SETTINGS = Settings(width=8, heads=2, max_length=6, token_budget=64, dropout=0.0, input_dropout=0.0)
NEGATIVES = torch.tensor([4, 0, 5, 4, 8])
SEEN = torch.tensor([4, 1, 0, 2, 3, 5, 1, 1, 2])


def model_of(name: str, **changes: object) -> NextItemModel:
    settings = dataclasses.replace(SETTINGS, **changes)  # type: ignore[arg-type]
    encoder = hstu_encoder(settings) if name == "hstu" else PaddedSASRec(settings)
    return NextItemModel(encoder, SEEN, settings)


def rows() -> JaggedTensor:
    items = torch.tensor([1, 5, 2, 0, 3, 8, 8, 4, 7, 6])
    following = torch.tensor([5, 2, 4, 3, 8, 8, 4, 7, 6, 0])
    return JaggedTensor.from_lengths(
        items, torch.tensor([3, 1, 6]), max_length=6, weights=following
    )


def weights_of(batch: JaggedTensor) -> Tensor:
    assert batch.weights is not None
    return batch.weights


@pytest.mark.parametrize("name", ["hstu", "sasrec"])
def test_states_are_causal_and_rows_do_not_meet(name: str) -> None:
    model = model_of(name).eval()
    batch = rows()
    states = model.states(batch)
    torch.testing.assert_close(states.norm(dim=1), torch.ones(10))
    for row in range(3):
        alone = Rows(batch).take([row])
        ours = states[batch.offsets[row] : batch.offsets[row + 1]]
        torch.testing.assert_close(model.states(alone), ours)
    changed = batch.values.clone()
    changed[7] = 1
    after = model.states(batch.with_values(changed))
    same = [0, 1, 2, 3, 4, 5, 6]
    torch.testing.assert_close(after[same], states[same])
    assert not torch.allclose(after[8:], states[8:])


def test_the_score_is_that_of_the_last_state() -> None:
    model = model_of("sasrec").eval()
    batch = rows()
    scores = model.scores(batch)
    assert scores.shape == (3, 9)
    states = model.states(batch)[[2, 3, 9]]
    expected = functional.cosine_similarity(
        states[:, None], model.items.weight[None].expand(3, -1, -1), dim=2
    )
    torch.testing.assert_close(scores, expected / SETTINGS.temperature)


def test_the_full_loss_is_cross_entropy_over_all_items() -> None:
    model = model_of("sasrec", loss="full", temperature=0.1)
    batch = rows()
    logits = model.states(batch) @ functional.normalize(model.items.weight, dim=1).T / 0.1
    torch.testing.assert_close(model(batch), functional.cross_entropy(logits, weights_of(batch)))


@pytest.mark.parametrize("loss", ["uniform", "in-batch"])
def test_the_sampled_losses_by_a_loop(loss: str) -> None:
    model = model_of("sasrec", loss=loss, temperature=0.1)
    batch = rows()
    states, targets = model.states(batch), weights_of(batch)
    frequency = SEEN.clamp(min=1) / SEEN.clamp(min=1).sum()
    losses = []
    for state, target in zip(states, targets.tolist(), strict=True):
        candidates = [target, *(item for item in NEGATIVES.tolist() if item != target)]
        logits = functional.cosine_similarity(state[None], model.items.weight[candidates]) / 0.1
        if loss == "in-batch":
            logits = logits - frequency[candidates].log()
        losses.append(logits.logsumexp(0) - logits[0])
    torch.testing.assert_close(model(batch, NEGATIVES), torch.stack(losses).mean())
    with pytest.raises(ValueError, match=f"negatives must be given for the {loss} loss"):
        model(batch)


@pytest.mark.parametrize("name", ["hstu", "sasrec"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_learns(name: str, tied: bool) -> None:
    model = model_of(name, tied=tied)
    model(rows(), NEGATIVES).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
    assert ("outputs.weight" in dict(model.named_parameters())) != tied


def test_the_loss_under_autocast_is_in_float32() -> None:
    model = model_of("hstu")
    exact = model(rows(), NEGATIVES)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(rows(), NEGATIVES)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.detach(), exact.detach(), rtol=0.05, atol=0.0)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_items_that_follow() -> None:
    batch = rows()
    items, shares = following(batch, 3, 0.5)
    nexts = weights_of(batch).tolist()
    for row in range(3):
        start, end = batch.offsets[row : row + 2].tolist()
        for event in range(start, end):
            ahead = nexts[event : min(event + 3, end)]
            weights = [0.5**place for place in range(len(ahead))]
            expected = [weight / sum(weights) for weight in weights] + [0.0] * (3 - len(ahead))
            torch.testing.assert_close(shares[event], torch.tensor(expected))
            assert items[event, : len(ahead)].tolist() == ahead


def test_the_items_of_the_past() -> None:
    batch = rows()
    items, inside = past_items(batch, 6)
    for row in range(3):
        start, end = batch.offsets[row : row + 2].tolist()
        for event in range(start, end):
            past = batch.values[start : event + 1].tolist()
            assert items[event][inside[event]].tolist() == past
            assert set(items[event][~inside[event]].tolist()) <= {int(batch.values[event])}


def test_the_loss_of_several_next_items_by_a_loop() -> None:
    model = model_of("sasrec", loss="full", temperature=0.1, horizon=3)
    batch = rows()
    logits = model.states(batch) @ functional.normalize(model.items.weight, dim=1).T / 0.1
    log_probabilities = logits.log_softmax(1)
    items, shares = following(batch, 3, 0.5)
    losses = []
    for event in range(10):
        for item, share in zip(items[event], shares[event], strict=True):
            losses.append(-share * log_probabilities[event, item])
    torch.testing.assert_close(model(batch), torch.stack(losses).sum() / 10)


def test_all_items_as_negatives_are_the_full_loss() -> None:
    model, sampled = model_of("sasrec", loss="full", horizon=2), model_of("sasrec", horizon=2)
    sampled.load_state_dict(model.state_dict())
    batch = Rows(rows()).take([1])  # one target an event: no other is left out
    torch.testing.assert_close(sampled(batch, torch.arange(9)), model(batch))


def test_items_of_the_past_have_a_bias_of_their_own() -> None:
    model = model_of("hstu", loss="full", repeat_bias=True).eval()
    batch = rows()
    before, loss_before = model.scores(batch), model(batch)
    assert model.repeat_bias is not None
    nn.init.constant_(model.repeat_bias, -SETTINGS.temperature)  # over the temperature: 1
    change = model.scores(batch) - before
    expected = torch.zeros(3, 9)
    expected[0, [1, 5, 2]] = -1
    expected[1, 0] = -1
    for item in (3, 8, 8, 4, 7, 6):  # once for each time
        expected[2, item] -= 1
    torch.testing.assert_close(change, expected)
    assert not torch.isclose(model(batch), loss_before)
    with pytest.raises(ValueError, match="repeat_bias is learned by the full loss alone, got unif"):
        dataclasses.replace(SETTINGS, repeat_bias=True)


def test_dropped_items_are_read_as_nothing() -> None:
    model = model_of("sasrec", item_dropout=0.5)
    read: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, given: read.append(given[0].values))
    lengths = torch.full((40,), 5)
    batch = JaggedTensor.from_lengths(torch.randint(9, (200,)), lengths, max_length=5)
    model.states(batch)
    model.eval().states(batch)
    dropped = (read[0] == 0).all(1)
    assert 60 < int(dropped.sum()) < 140
    torch.testing.assert_close(read[0][~dropped], 2 * read[1][~dropped])


def test_a_batch_without_targets() -> None:
    batch = rows()
    bare = JaggedTensor(batch.values, batch.offsets, batch.max_length)
    with pytest.raises(ValueError, match="batch must carry the next items as weights, got none"):
        model_of("sasrec")(bare)


def test_both_published_layers() -> None:
    research, production = (
        hstu_encoder(dataclasses.replace(SETTINGS, layer=layer))
        for layer in ("research", "production")
    )
    assert isinstance(research, HSTUStack)
    assert research.config.position_bias
    assert research.config.time_buckets == 0
    assert research.config.activation == "uvqk"
    assert production.config.activation == "u"
    assert not production.config.position_bias


def test_weight_decay_is_for_the_matrices_of_layers() -> None:
    model = model_of("sasrec")
    decayed, others = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    assert {id(p) for p in decayed["params"]} == {id(weight) for weight in linear}
    assert len(decayed["params"]) + len(others["params"]) == len(list(model.parameters()))
