//! Two builds of the program, asked for the same in turns: is one of them faster, or is it chance?
//!
//! - [`verdict`]: what nine rounds say about one operation.

mod verdict;

use std::path::Path;

use anyhow::{Context, Result};

use self::verdict::{Measured, Rounds};
use crate::{
    Setting,
    figures::Figures,
    hot::{Hot, HotShop},
    load::{Load, Until},
    progress,
    server::Server,
};

const CONNECTIONS: usize = 32;
const ROUNDS: usize = 9;
/// Until it is known how long a round has to be. What comes in turns (`Hot::OrderOfCart`) is whole in it.
const FIRST_REQUESTS: usize = 256;
/// Of which the commits are counted.
const ALONE_REQUESTS: usize = 128;

/// One build, with a shop of its own.
struct Side {
    server: Server,
    shop: HotShop,
    load: Load,
}

pub(crate) fn measure(
    setting: &Setting<'_>,
    other: &Path,
    named: &[Hot],
    figures: &mut Figures,
) -> Result<()> {
    figures.note(&format!("this is {}, other is {}", setting.binary.display(), other.display()));
    let mut sides = [
        Side::start(setting, setting.binary, "this").context("this build")?,
        Side::start(setting, other, "other").context("the other build")?,
    ];
    figures.say(&verdict::heading());
    for hot in Hot::wanted(named) {
        progress(hot.name());
        let (rounds, next) = compare(&mut sides, hot, setting)?;
        rounds.lines(hot.name()).iter().for_each(|line| figures.say(line));
        let [this, other] = &mut sides;
        let commits = [this.commits_alone(hot, next)?, other.commits_alone(hot, next)?];
        figures.say(&verdict::commits(commits));
    }
    figures.note("commits are those of one request after the other, over one connection");
    figures.note("ratios are this to other; (low - high) is the middle half of the rounds");
    sides.into_iter().try_for_each(|side| side.server.stop())
}

/// Both sides get the same requests, so their data stays equal, too. Also the number of the next request.
fn compare(sides: &mut [Side; 2], hot: Hot, setting: &Setting<'_>) -> Result<(Rounds, usize)> {
    let mut next = HotShop::filled(hot);
    let mut count = FIRST_REQUESTS;
    for lasts in [setting.pace.warm_up, setting.pace.round] {
        let mut slowest = f64::INFINITY;
        for side in sides.iter_mut() {
            slowest = slowest.min(side.round(hot, next, count)?.per_second);
        }
        next += count;
        count = ((slowest * lasts.as_secs_f64()) as usize).max(FIRST_REQUESTS);
    }
    let mut rounds = Rounds::default();
    for number in 0..ROUNDS {
        // This, other, other, this: whoever comes second has no advantage of it.
        let [this, other] = &mut *sides;
        let pair = if number % 2 == 0 {
            let first = this.round(hot, next, count)?;
            (first, other.round(hot, next, count)?)
        } else {
            let first = other.round(hot, next, count)?;
            (this.round(hot, next, count)?, first)
        };
        rounds.push(pair);
        next += count;
    }
    Ok((rounds, next))
}

impl Side {
    fn start(setting: &Setting<'_>, binary: &Path, name: &str) -> Result<Self> {
        progress(&format!("making a shop of 10,000 products for {}", binary.display()));
        let server = Server::demo(binary, &setting.scratch.dir(name)?).context("the shop did not start")?;
        let shop = HotShop::fill(&server)?;
        let load = Load::connect(server.address, CONNECTIONS)?;
        Ok(Self { server, shop, load })
    }

    fn round(&mut self, hot: Hot, first: usize, count: usize) -> Result<Measured> {
        let requests = self.shop.requests(hot, first, count);
        let before = self.server.cpu()?;
        let done = self.load.run(&requests, Until::Each).with_context(|| hot.name().to_owned())?;
        let spent = self.server.cpu()?.since(&before);
        let cpu_us = spent.as_secs_f64() * 1e6 / done.requests as f64;
        Ok(Measured { per_second: done.per_second(), cpu_us })
    }

    /// How often a request waits for the disk when nobody else is there, at most: group commits of this side.
    fn commits_alone(&self, hot: Hot, first: usize) -> Result<f64> {
        const COMMITS: &str = "mobimir_embedded_commits_total";
        let requests = self.shop.requests(hot, first, ALONE_REQUESTS);
        let before = self.server.metric(COMMITS)?;
        let done = Load::connect(self.server.address, 1)?.run(&requests, Until::Each)?;
        Ok((self.server.metric(COMMITS)? - before) / done.requests as f64)
    }
}
