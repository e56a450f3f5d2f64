//! What a write takes that is mirrored, to what it takes in the slower of the two stores alone.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use mobimir_core::{
    moving::Whole,
    ports::{CartStore, OrderStore},
};
use mobimir_migrate::phase::Phase;
use tokio::time::Instant;

use super::{
    Pace,
    moved::Moved,
    shoppers::{Buying, Filling, Shopping, at_most, at_rate},
    stores::Stores,
};
use crate::{
    figures::{Figures, median, show_rounds},
    progress,
    sides::CLIENTS,
};

const P50_BAR: f64 = 1.3;
/// Of what goes on for ever, the copies included.
const SHARE_OF_CAPACITY: f64 = 1.0 / 3.0;
const ROUNDS: usize = 7;
const ROUNDS_QUICK: usize = 2;
const ROUND: Duration = Duration::from_secs(5);
const ROUND_QUICK: Duration = Duration::from_secs(1);

/// Where it is written: to both, to the source alone, to the target alone.
const WAYS: [&str; 3] = ["mirrored", "mongodb", "cassandra"];

/// Of one round: the median of each operation, in milliseconds, for each of the [`WAYS`].
type Medians = [Vec<f64>; 3];

pub(super) async fn measure(stores: &Stores<'_>, pace: Pace, figures: &mut Figures) -> Result<()> {
    progress("orders that are written to MongoDB and mirrored to Cassandra");
    let (source, target) = (&stores.source.orders, &stores.target.orders);
    let moved = Moved::in_phase(Phase::DualWrite, source.clone(), target.clone())?;
    let ways: [Arc<dyn OrderStore>; 3] = [moved.port.clone(), source.port.clone(), target.port.clone()];
    compare::<_, _, Buying>(&moved, &ways, pace, figures).await?;

    progress("changes of carts that are written to MongoDB and mirrored to Cassandra");
    let (source, target) = (&stores.source.carts, &stores.target.carts);
    let moved = Moved::in_phase(Phase::DualWrite, source.clone(), target.clone())?;
    let ways: [Arc<dyn CartStore>; 3] = [moved.port.clone(), source.port.clone(), target.port.clone()];
    compare::<_, _, Filling>(&moved, &ways, pace, figures).await
}

async fn compare<W, P, S>(
    moved: &Moved<W, P>,
    ways: &[Arc<P>; 3],
    pace: Pace,
    figures: &mut Figures,
) -> Result<()>
where
    W: Whole,
    P: ?Sized + Send + Sync + 'static,
    S: Shopping<P>,
{
    for writes in Writes::ALL {
        // Where they are the same, one of them says it all.
        if writes == Writes::Apart && !S::HAS_APART {
            continue;
        }
        compare_at::<W, P, S>(writes, moved, ways, pace, figures).await?;
    }
    Ok(())
}

/// At a third of the rate that both stores can take for ever, which is measured in one of two ways.
async fn compare_at<W, P, S>(
    writes: Writes,
    moved: &Moved<W, P>,
    ways: &[Arc<P>; 3],
    pace: Pace,
    figures: &mut Figures,
) -> Result<()>
where
    W: Whole,
    P: ?Sized + Send + Sync + 'static,
    S: Shopping<P>,
{
    let (rounds, lasts) = if pace.quick { (ROUNDS_QUICK, ROUND_QUICK) } else { (ROUNDS, ROUND) };
    let rate = capacity::<W, P, S>(moved, &ways[0], lasts, writes).await? * SHARE_OF_CAPACITY;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let mut medians = Medians::default();
        // Every time another one first.
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            let shopping = S::begin(&ways[way]).await?;
            moved.drained().await?;
            let go_on = |number, due| shopping.go_on(ways[way].clone(), number, due);
            let took = at_rate(rate, lasts, go_on).await?;
            moved.drained().await?;
            let of_operation =
                |at: usize| median(&took.iter().map(|operations| operations[at]).collect::<Vec<_>>());
            medians[way] = (0..S::OPERATIONS.len()).map(of_operation).collect();
        }
        times.push(medians);
    }
    for (at, operation) in S::OPERATIONS.iter().enumerate() {
        let operation = format!("{operation}{}", writes.suffix());
        tell(&operation, at, &times, figures);
        figures.info(&format!("migrate_dual_write_rate_{operation}"), rate, "writes/s");
    }
    Ok(())
}

/// What is written while it is measured how much both stores can take. Copies of several changes of one
/// entity may be one, so the first gives a higher rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// To the same orders or carts as afterwards: the first definition.
    Together,
    /// Each to an order or a cart of its own: the second.
    Apart,
}

impl Writes {
    const ALL: [Self; 2] = [Self::Together, Self::Apart];

    /// Behind the names of the figures.
    fn suffix(self) -> &'static str {
        match self {
            Self::Together => "",
            Self::Apart => "_apart",
        }
    }
}

/// How many a second both stores take for as long as one likes: written to the one and copied to the other.
pub(super) async fn capacity<W, P, S>(
    moved: &Moved<W, P>,
    store: &Arc<P>,
    lasts: Duration,
    writes: Writes,
) -> Result<f64>
where
    W: Whole,
    P: ?Sized + Send + Sync + 'static,
    S: Shopping<P>,
{
    let shopping = Arc::new(S::begin(store).await?);
    moved.drained().await?;
    let (started, store) = (Instant::now(), store.clone());
    let go_on = move |number, due| match writes {
        Writes::Together => shopping.go_on(store.clone(), number, due),
        Writes::Apart => shopping.go_on_apart(store.clone(), number, due),
    };
    let done = at_most(CLIENTS, lasts, go_on).await?;
    moved.drained().await?;
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

fn tell(operation: &str, at: usize, times: &[Medians], figures: &mut Figures) {
    let name = format!("migrate_dual_write_p50_{operation}");
    let to_slower = |[mirrored, source, target]: &Medians| mirrored[at] / source[at].max(target[at]);
    let ratios: Vec<f64> = times.iter().map(to_slower).collect();
    show_rounds(&name, &ratios);
    figures.at_most(&name, median(&ratios), "x", P50_BAR);
    for (way, way_name) in WAYS.iter().enumerate() {
        let of_way: Vec<f64> = times.iter().map(|medians| medians[way][at]).collect();
        figures.info(&format!("{name}_{way_name}"), median(&of_way), "ms");
    }
}
