//! Which instructions the CPU at hand has.

/// A level of instructions that inner loops are compiled for. Rule K1: a value other than `Portable` is made only by
/// [`Isa::best`] (and, in tests, by `available`), after its features were detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// What the target has without asking.
    Portable,
    /// AVX2, F16C and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// [`Isa::Avx2`] and AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The highest level that this CPU has. The standard library caches the detection in atomics; there is no lock.
    #[inline]
    pub(crate) fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") && is_x86_feature_detected!("fma") {
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            return if avx512 { Isa::Avx512 } else { Isa::Avx2 };
        }
        Isa::Portable
    }

    /// Every level up to the best one, so that tests cover the loops that this CPU would not choose.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Isa> {
        #[cfg(target_arch = "x86_64")]
        let all = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        #[cfg(not(target_arch = "x86_64"))]
        let all = [Isa::Portable];
        let best = all.iter().position(|&isa| isa == Isa::best());
        all[..=best.expect("the best level is listed")].to_vec()
    }
}
