//! Counters that only rise: what happened since the last look at one is the difference.

/// A reading of a counter, and when it was taken, in the driver's microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    pub(super) count: u64,
    pub(super) at: u64,
}

/// A counter with its last reading.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Meter {
    last: Option<Reading>,
    /// Over the interval that the last reading ended.
    rate: Option<f64>,
}

impl Meter {
    /// Counts a microsecond since the reading before this one. A reading at the same time as that ends no interval, so the
    /// last one's is told again. `None` after the first reading, and after a driver began to count anew.
    pub(super) fn read(&mut self, now: Reading) -> Option<f64> {
        let before = self.last.replace(now);
        self.rate = match before {
            Some(before) if now.at == before.at && now.count >= before.count => self.rate,
            Some(before) if now.at > before.at && now.count >= before.count => {
                Some((now.count - before.count) as f64 / (now.at - before.at) as f64)
            }
            _ => None,
        };
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(count: u64, at: u64) -> Reading {
        Reading { count, at }
    }

    #[test]
    fn a_rate_is_that_since_the_last_reading() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(reading(500, 1000)), None);
        assert_eq!(meter.read(reading(600, 1200)), Some(0.5));
        assert_eq!(meter.read(reading(600, 1200)), Some(0.5), "no time has passed");
        assert_eq!(meter.read(reading(600, 1300)), Some(0.0));
        assert_eq!(meter.read(reading(800, 1400)), Some(2.0));
    }

    #[test]
    fn a_counter_that_begins_anew_has_no_rate_at_first() {
        let mut meter = Meter::default();
        meter.read(reading(500, 1000));
        meter.read(reading(600, 1200));
        assert_eq!(meter.read(reading(10, 1300)), None, "fewer than before");
        assert_eq!(meter.read(reading(20, 1310)), Some(1.0));
        assert_eq!(meter.read(reading(30, 5)), None, "earlier than before");
        assert_eq!(meter.read(reading(30, 6)), Some(0.0));
        assert_eq!(meter.read(reading(29, 6)), None);
    }

    proptest! {
        #[test]
        fn any_readings_give_finite_rates_that_are_not_negative(readings in proptest::collection::vec(any::<(u64, u64)>(), 0..8)) {
            let mut meter = Meter::default();
            for (count, at) in readings {
                if let Some(rate) = meter.read(reading(count, at)) {
                    prop_assert!(rate.is_finite() && rate >= 0.0);
                }
            }
        }

        /// However an interval is cut, the parts weighed by their lengths are the whole.
        #[test]
        fn parts_of_an_interval_add_up(steps in proptest::collection::vec((0..1000_u64, 1..1000_u64), 1..8)) {
            let (mut fine, mut coarse) = (Meter::default(), Meter::default());
            let mut now = reading(0, 0);
            fine.read(now);
            coarse.read(now);
            let mut sum = 0.0;
            for (count, time) in steps {
                now = reading(now.count + count, now.at + time);
                sum += fine.read(now).unwrap_or(f64::NAN) * time as f64;
            }
            let whole = coarse.read(now).unwrap_or(f64::NAN) * now.at as f64;
            prop_assert!((sum - whole).abs() < 1e-6 * (1.0 + whole), "{} {}", sum, whole);
        }
    }
}
