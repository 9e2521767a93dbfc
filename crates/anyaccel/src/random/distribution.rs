//! What is drawn, and in which order.

use crate::error::{Error, Result};
use anyaccel_hal::DType;
use anyaccel_kernels::random::{Draw, Fill, Layout, Source};

/// What elements are drawn from. `anyaccel_kernels::random` defines each to the bit.
///
/// Floats are float16, bfloat16, float32 and float64; integers those of 8 to 64 bits.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Distribution {
    /// Random bits, for integers.
    Bits,
    /// Uniform numbers from `from` on and below `to`, for floats. Both are finite and `from <= to`.
    /// [`torch.Tensor.uniform_`](https://pytorch.org/docs/stable/generated/torch.Tensor.uniform_.html)
    Uniform {
        /// The smallest number.
        from: f64,
        /// Above all numbers, or equal to `from`.
        to: f64,
    },
    /// Normal numbers, for floats. Both are finite and `std >= 0`.
    /// [`torch.Tensor.normal_`](https://pytorch.org/docs/stable/generated/torch.Tensor.normal_.html)
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Exponentials of normal numbers, for floats. Both are finite and `std >= 0`.
    /// [`torch.Tensor.log_normal_`](https://pytorch.org/docs/stable/generated/torch.Tensor.log_normal_.html)
    LogNormal {
        /// The mean of the logarithms.
        mean: f64,
        /// The standard deviation of the logarithms.
        std: f64,
    },
    /// Exponentially distributed numbers, for floats.
    /// [`torch.Tensor.exponential_`](https://pytorch.org/docs/stable/generated/torch.Tensor.exponential_.html)
    Exponential {
        /// 1 / mean, positive and finite.
        lambda: f64,
    },
    /// The trial of the first success, from 1 on, for floats and integers.
    /// [`torch.Tensor.geometric_`](https://pytorch.org/docs/stable/generated/torch.Tensor.geometric_.html)
    Geometric {
        /// The probability of a success, above 0 and below 1.
        p: f64,
    },
    /// 1 with the probability `p`, else 0, for floats, integers and bool.
    /// [`torch.Tensor.bernoulli_`](https://pytorch.org/docs/stable/generated/torch.Tensor.bernoulli_.html)
    Bernoulli {
        /// The probability of a 1, from 0 to 1.
        p: f64,
    },
    /// Integers from `from` on and below `to`, for floats, integers and bool; the type has to reach them.
    /// [`torch.randint`](https://pytorch.org/docs/stable/generated/torch.randint.html)
    Integers {
        /// The smallest integer.
        from: i128,
        /// Above all integers.
        to: i128,
    },
    /// Integers from 0 to the largest of an integer type, or to the end of those that a float type holds without a gap.
    /// [`torch.Tensor.random_`](https://pytorch.org/docs/stable/generated/torch.Tensor.random_.html)
    WholeNumbers,
    /// 0, 1, .. in random order, for integers of 32 and 64 bits; in the portable layout alone.
    /// [`torch.randperm`](https://pytorch.org/docs/stable/generated/torch.randperm.html)
    Permutation,
}

impl Distribution {
    /// From 0 on and below 1.
    pub const UNIFORM: Self = Self::Uniform { from: 0.0, to: 1.0 };
    /// With mean 0 and standard deviation 1.
    pub const NORMAL: Self = Self::Normal { mean: 0.0, std: 1.0 };

    /// The fill, from a place in the sequence that is still to be chosen.
    pub(super) fn fill(self, dtype: DType, count: u64, layout: Layout) -> Result<Fill> {
        let draw = Draw { source: Source::Value { seed: 0, offset: 0 }, layout };
        let fill = match self {
            Self::Bits => Fill::bits(dtype, count, draw),
            Self::Uniform { from, to } => Fill::uniform(dtype, count, draw, from, to),
            Self::Normal { mean, std } => Fill::normal(dtype, count, draw, mean, std),
            Self::LogNormal { mean, std } => Fill::log_normal(dtype, count, draw, mean, std),
            Self::Exponential { lambda } => Fill::exponential(dtype, count, draw, lambda),
            Self::Geometric { p } => Fill::geometric(dtype, count, draw, p),
            Self::Bernoulli { p } => Fill::bernoulli(dtype, count, draw, p),
            Self::Integers { from, to } => Fill::integers(dtype, count, draw, from, to),
            Self::WholeNumbers => Fill::whole_numbers(dtype, count, draw),
            Self::Permutation => Fill::permutation(dtype, count, draw),
        };
        fill.map_err(Error::Random)
    }
}
