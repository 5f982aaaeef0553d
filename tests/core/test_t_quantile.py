import pytest

from skillopt_airflow.core.t_quantile import two_sided_quantile


@pytest.mark.parametrize(
    ("confidence", "degrees", "t"),
    [
        (0.95, 1, 12.706205),
        (0.95, 3, 3.182446),
        (0.95, 4999, 1.960439),
        (0.99, 5, 4.032143),
        (0.5, 1, 1.0),
        (0.9, 10, 1.812461),
    ],
)
def test_printed_quantiles(confidence: float, degrees: int, t: float) -> None:
    assert two_sided_quantile(confidence, degrees) == pytest.approx(t, abs=5e-7)


def test_they_fall_towards_the_normal_quantile() -> None:
    quantiles = [two_sided_quantile(0.95, degrees) for degrees in range(1, 120)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert two_sided_quantile(0.95, 100_000) == pytest.approx(1.959964, abs=1e-4)
