//! CRT-1: every cart, against what was acknowledged.

use serde::Deserialize;

use super::{Check, Wrong};
use crate::{
    crowd::{Crowd, LineAnswer},
    shop::{Progress, ShopError, all},
    wire::Wire,
};

#[derive(Deserialize)]
struct CartAnswer<'a> {
    #[serde(borrow)]
    items: Vec<LineAnswer<'a>>,
}

pub(super) fn carts(
    wire: &mut Wire,
    crowd: &Crowd,
    wrong: &mut Wrong,
    progress: Progress<'_>,
) -> Result<Check, ShopError> {
    let owners: Vec<usize> = (0..crowd.shoppers.len())
        .filter(|at| {
            let shopper = &crowd.shoppers[*at];
            // Guests who are gone have none, and of a lost order nobody knows what it took.
            !shopper.token.is_empty() && shopper.pending.is_none()
        })
        .collect();
    let found = all(
        wire,
        "comparing carts",
        owners.len(),
        progress,
        |number, out| out.put("GET", &["/v1/cart"], crowd.shoppers[owners[number]].reads()),
        |_, answer| {
            let cart: CartAnswer<'_> = serde_json::from_slice(answer.body).ok()?;
            (answer.status == 200).then(|| crowd.numbered(&cart.items))
        },
    )?;
    let mut check = Check { looked_at: owners.len() as u64, wrong: 0 };
    for (owner, lines) in owners.iter().zip(found) {
        let differs = match lines {
            Some(lines) => crowd.shoppers[*owner].cart.differs(&lines).map(|(product, known, units)| {
                let id = &crowd.goods.product(product).id;
                format!("{units} of {id} instead of {} to {}", known.low, known.high)
            }),
            None => Some("a product that was never put in".to_owned()),
        };
        if let Some(differs) = differs {
            check.wrong += 1;
            wrong.tell(|| format!("CRT-1: the cart of shopper {owner} has {differs}"));
        }
    }
    Ok(check)
}
