use std::sync::Arc;

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    moving::{CartSide, Movables, WholeCart},
    ports::{CartStore, StoreResult},
};

use super::{super::arena::Universe, Bench, Checked, HOUR_MS, Subject, Suite, answered, at, same};

pub(super) struct Carts;

/// More than are kept unpacked.
const ADDS: usize = cart::UNPACKED_CHANGES_MAX + 4;

impl Subject for Carts {
    type W = WholeCart;
    type Port = dyn CartStore;
    type Stores = Movables;

    const NAME: &'static str = "carts";
    const CHANGES_MAX: usize = 4;
    const LASTS_MS: Option<i64> = Some(HOUR_MS);

    fn side(movables: &Movables) -> &CartSide {
        &movables.carts
    }

    fn keys(universe: &Universe, n: usize) -> Vec<Owner> {
        vec![owner(universe, n)]
    }

    async fn make(universe: &Universe, port: &Arc<dyn CartStore>, n: usize) -> StoreResult<()> {
        append(universe, port, n, 0).await
    }

    async fn change(
        universe: &Universe,
        port: &Arc<dyn CartStore>,
        n: usize,
        change: usize,
    ) -> StoreResult<()> {
        append(universe, port, n, change + 1).await
    }
}

fn owner(universe: &Universe, n: usize) -> Owner {
    if n.is_multiple_of(2) { Owner::User(universe.user(n)) } else { Owner::Guest(universe.session(n)) }
}

fn add(universe: &Universe, n: usize, change: usize) -> CartChange {
    let product = universe.product(change % 3);
    CartChange {
        id: universe.change(n * 1_000 + change),
        at: at(universe, change),
        origin: owner(universe, n),
        keyed: change % 2 == 1,
        effect: Effect::Add { product, quantity: 1 + change as u64, zone: None },
    }
}

async fn append(universe: &Universe, port: &Arc<dyn CartStore>, n: usize, change: usize) -> StoreResult<()> {
    let expires_at = universe.start.plus_ms(HOUR_MS + change as i64);
    port.append(owner(universe, n), vec![add(universe, n, change)], expires_at, at(universe, change)).await
}

pub(super) fn conform(suite: &Suite) {
    suite.example("carts: a long one that was put goes on, and is put over by a newer one", goes_on);
}

/// A cart that the model has made long is put, changed there, put once more over what the store has made of it, and
/// then changed in the store: names of lines still mean what they meant.
async fn goes_on(bench: &Bench) -> Checked {
    let (universe, side, model) = (&bench.universe, &bench.store.carts, &bench.model.carts);
    let owner = owner(universe, 0);
    for change in 0..ADDS {
        answered(append(universe, &model.port, 0, change).await)?;
    }
    let later = at(universe, ADDS);
    put(bench, owner).await?;
    answered(side.port.read(owner, later).await)?;

    let seen = answered(model.port.read(owner, later).await)?.map(|cart| cart::fold(&cart.changes));
    let covers = seen.map(|view| view.made_of()).unwrap_or_default();
    let clear = CartChange { effect: Effect::Cover { covers, order: None }, ..add(universe, 0, ADDS) };
    let expires_at = universe.start.plus_ms(2 * HOUR_MS);
    answered(model.port.append(owner, vec![clear], expires_at, later).await)?;
    answered(append(universe, &model.port, 0, ADDS + 1).await)?;
    put(bench, owner).await?;
    for port in [&side.port, &model.port] {
        answered(append(universe, port, 0, ADDS + 2).await)?;
        // The same once more, which counts once.
        answered(append(universe, port, 0, ADDS + 2).await)?;
    }
    let end = at(universe, ADDS + 2);
    let view = async |port: &Arc<dyn CartStore>| {
        let cart = port.read(owner, end).await?;
        Ok::<_, mobimir_core::ports::StoreError>(cart.map(|cart| {
            let view = cart::fold(&cart.changes);
            let lines: Vec<_> = view.lines.iter().map(|line| (line.product, line.quantity)).collect();
            (lines, cart.created_at, cart.updated_at, cart.expires_at)
        }))
    };
    let expected = answered(view(&model.port).await)?;
    bench.sees("the cart", expected, async || view(&side.port).await).await?;
    let untouched = async || {
        let page = side.port.untouched(end, None, 100, end).await?;
        let of_it = page.items.into_iter().filter(|(listed, _)| *listed == owner);
        Ok::<_, mobimir_core::ports::StoreError>(of_it.count())
    };
    bench.sees("how often it is listed as untouched", 1, untouched).await
}

async fn put(bench: &Bench, owner: Owner) -> Checked {
    let whole = answered(bench.model.carts.moving.whole(owner).await)?.whole;
    same("there is a cart", whole.is_some(), true)?;
    answered(bench.store.carts.moving.put(whole.into_iter().collect(), bench.universe.start).await)
}
