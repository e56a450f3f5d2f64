//! The highest rate of the Black Friday mix that keeps the limits of the policy. Searched once for all who ask.

use anyhow::{Context, Result};

use crate::{Setting, crowd::Crowd, progress};

const BEGIN: f64 = 2_000.0;

#[derive(Default)]
pub(crate) struct Best(Option<f64>);

impl Best {
    pub(crate) fn rate(&mut self, setting: &Setting<'_>, crowd: &Crowd<'_>) -> Result<f64> {
        if let Some(rate) = self.0 {
            return Ok(rate);
        }
        progress("the highest rate within the limits");
        let begin = BEGIN / setting.pace.divisor as f64;
        let report = crowd.find_max(begin, setting.pace.visit)?.context("no rate keeps the limits")?;
        Ok(*self.0.insert(report.rate))
    }
}
