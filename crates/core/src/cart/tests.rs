use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn owner() -> Owner {
    Owner::User(UserId(Uuid::from_u128(1)))
}

fn change(id: u128, effect: Effect) -> CartChange {
    CartChange {
        id: ChangeId(Uuid::from_u128(id)),
        at: Timestamp::from_millis(id as i64),
        origin: owner(),
        keyed: false,
        effect,
    }
}

fn add(id: u128, product: u128, quantity: u64) -> CartChange {
    change(id, Effect::Add { product: ProductId(Uuid::from_u128(product)), quantity, zone: None })
}

fn quantities(changes: &[CartChange]) -> Vec<(u128, u64)> {
    let mut lines: Vec<_> =
        fold(changes).lines.iter().map(|line| (line.product.0.as_u128(), line.quantity)).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn an_add_beside_a_clear_survives_it() {
    let seen = [add(1, 7, 2), add(2, 8, 1)];
    let clear = change(4, Effect::Cover { covers: fold(&seen).made_of(), order: None });
    let beside = add(3, 7, 5);
    assert_eq!(quantities(&[clear, seen[0].clone(), beside, seen[1].clone()]), [(7, 5)]);
}

#[test]
fn sets_of_one_cart_replace_each_other_and_of_two_carts_add_up() {
    let product = ProductId(Uuid::from_u128(7));
    let set = |id, quantity| change(id, Effect::Set { product, quantity, zone: None, covers: vec![] });
    assert_eq!(quantities(&[set(1, 5), set(2, 3)]), [(7, 3)]);
    let mut guests = set(3, 4);
    guests.origin = Owner::Guest(SessionId(Uuid::from_u128(2)));
    assert_eq!(quantities(&[set(1, 5), set(2, 3), guests]), [(7, 7)]);
}

#[test]
fn a_retry_of_a_packed_and_cleared_add_does_not_count_again() {
    let mut keyed = add(1, 7, 2);
    keyed.keyed = true;
    let clear = change(2, Effect::Cover { covers: vec![keyed.id], order: None });
    let packed =
        pack(ChangeId(Uuid::from_u128(9)), owner(), &[keyed.clone(), clear], Timestamp::from_millis(10));
    assert!(is_known(std::slice::from_ref(&packed), keyed.id));
    assert_eq!(quantities(&[packed, keyed]), []);
}

/// Finding of a ring, where a cover arrived hours after its cart was read and had been packed twice meanwhile.
#[test]
fn a_cover_finds_what_was_packed_twice_since_it_was_read() {
    let hours = |n: i64| Timestamp::from_millis(n * 3_600_000);
    for keyed in [false, true] {
        let added = CartChange { keyed, at: hours(0), ..add(1, 7, 3) };
        let seen = fold(std::slice::from_ref(&added)).made_of();
        let packed = pack(ChangeId(Uuid::from_u128(9)), owner(), std::slice::from_ref(&added), hours(0));
        let again = pack(ChangeId(Uuid::from_u128(10)), owner(), &[packed, add(2, 8, 1)], hours(6));
        let days = pack(ChangeId(Uuid::from_u128(11)), owner(), &[again], hours(60));
        let cover = change(3, Effect::Cover { covers: seen, order: None });
        assert_eq!(quantities(&[days, cover]), [(8, 1)]);
    }
}

/// CRT-2: the first look copied an add; then its cover arrived, and the guest's cart was packed before the second.
#[test]
fn a_cover_that_was_packed_between_two_looks_goes_along() {
    let guest_owner = Owner::Guest(SessionId(Uuid::from_u128(5)));
    let now = Timestamp::from_millis(10);
    let mut guest = vec![CartChange { origin: guest_owner, ..add(1, 7, 2) }];
    let mut user = for_merge(&guest, now);
    let covers = fold(&guest).made_of();
    guest.push(CartChange { origin: guest_owner, ..change(2, Effect::Cover { covers, order: None }) });
    let packed = [pack(ChangeId(Uuid::from_u128(9)), guest_owner, &guest, now)];
    let brought = for_merge(&packed, now);
    assert!(!has_arrived(&user, &brought));
    user.extend(brought.clone());
    assert!(has_arrived(&user, &brought));
    assert_eq!(quantities(&user), []);
}

#[test]
fn a_removed_line_can_be_covered_and_does_not_fill_the_cart() {
    let product = ProductId(Uuid::from_u128(7));
    let mut cart = Vec::new();
    for id in 1..100 {
        let covers = fold(&cart).made_of_line(product);
        cart.push(change(id, Effect::Set { product, quantity: 0, zone: None, covers }));
    }
    assert_eq!(fold(&cart).live_changes(), 1);
    cart.push(change(100, Effect::Cover { covers: fold(&cart).made_of(), order: None }));
    assert_eq!(fold(&cart).live_changes(), 0);
}

/// The guest added two and made it three. Where the cart was packed, only the three are left.
#[test]
fn what_a_guest_replaced_does_not_come_back_with_a_second_look_elsewhere() {
    let product = ProductId(Uuid::from_u128(7));
    let set = Effect::Set { product, quantity: 3, zone: None, covers: vec![ChangeId(Uuid::from_u128(1))] };
    let guest = [add(1, 7, 2), change(2, set)];
    let now = Timestamp::from_millis(10);
    let packed = pack(ChangeId(Uuid::from_u128(9)), owner(), &guest, now);
    let mut user = for_merge(&[packed], now);
    let again = for_merge(&guest, now).into_iter().filter(|change| !is_known(&user, change.id));
    let again: Vec<CartChange> = again.collect();
    user.extend(again);
    assert_eq!(quantities(&user), [(7, 3)]);
}

/// What people do to a cart, each knowing some of what was done before.
fn history() -> impl Strategy<Value = Vec<CartChange>> {
    let step = (0..4u8, 1..4u128, 1..5u64, any::<u64>(), any::<bool>(), any::<bool>());
    proptest::collection::vec(step, 1..24).prop_map(|steps| {
        let mut changes: Vec<CartChange> = Vec::new();
        for (index, (step, product, quantity, seen, keyed, guest)) in steps.into_iter().enumerate() {
            let id = index as u128 + 1;
            let seen: Vec<CartChange> = changes
                .iter()
                .enumerate()
                .filter(|(at, _)| seen >> (at % 64) & 1 == 1)
                .map(|(_, c)| c.clone())
                .collect();
            let view = fold(&seen);
            let product_id = ProductId(Uuid::from_u128(product));
            let covers = view.line(product_id).map(|line| line.made_of.clone()).unwrap_or_default();
            let mut next = match step {
                0 | 1 => add(id, product, quantity),
                2 => change(
                    id,
                    Effect::Set { product: product_id, quantity: quantity - 1, zone: None, covers },
                ),
                _ => change(id, Effect::Cover { covers: view.made_of(), order: None }),
            };
            next.keyed = keyed;
            if guest {
                next.origin = Owner::Guest(SessionId(Uuid::from_u128(5)));
            }
            changes.push(next);
        }
        changes
    })
}

proptest! {
    /// CRT-2: a guest's cart is looked at twice, where it was packed and where it was not, in either order, by stores that leave
    /// out what they know and by those that do not; and in between the user empties the cart, or does not.
    #[test]
    fn a_merge_brings_the_same_from_every_store(
        guest in history(), packed_first in any::<bool>(), leaves_out in any::<bool>(), empties in any::<bool>(),
    ) {
        let now = Timestamp::from_millis(100);
        let packed = vec![pack(ChangeId(Uuid::from_u128(999)), owner(), &guest, now)];
        let (first, second) = if packed_first { (&packed, &guest) } else { (&guest, &packed) };
        let mut user = for_merge(first, now);
        prop_assert_eq!(quantities(&user), quantities(&guest));
        if empties {
            user.push(change(1_000, Effect::Cover { covers: fold(&user).made_of(), order: None }));
        }
        let expected = quantities(&user);
        let again = for_merge(second, now).into_iter().filter(|c| !leaves_out || !is_known(&user, c.id));
        let again: Vec<CartChange> = again.collect();
        user.extend(again);
        prop_assert_eq!(quantities(&user), expected);
    }

    /// CRT-1: neither the order of arrival nor a repeated arrival matters.
    #[test]
    fn the_fold_knows_no_order(changes in history(), shuffled in any::<u64>()) {
        let mut again = changes.clone();
        let length = again.len();
        for at in 0..length {
            again.swap(at, (shuffled.rotate_left(at as u32) as usize) % length);
        }
        again.extend(changes.iter().take(length / 2).cloned());
        prop_assert_eq!(quantities(&changes), quantities(&again));
    }

    /// CRT-4: what an order has taken is out of a cart that has not received its cover.
    #[test]
    fn a_cart_without_what_was_taken_is_the_cart_with_its_cover(changes in history(), at in 0..24usize) {
        let taken = fold(&changes[..at.min(changes.len())]).made_of();
        let cover = change(1_000, Effect::Cover { covers: taken.clone(), order: None });
        let covered = [changes.as_slice(), &[cover]].concat();
        prop_assert_eq!(fold_without(&changes, &taken), fold(&covered));
    }

    /// What is covered does not count, wherever the cover stands.
    #[test]
    fn live_is_what_nothing_covers(changes in history(), at in 0..24usize) {
        let at = at.min(changes.len());
        let packed = pack(ChangeId(Uuid::from_u128(999)), owner(), &changes[..at], Timestamp::from_millis(100));
        let changes = [&[packed], &changes[at..], &changes[..at]].concat();
        let mut covered = IdSet::default();
        for change in &changes {
            match &change.effect {
                Effect::Set { covers, .. } | Effect::Cover { covers, .. } => covered.extend(covers.iter().copied()),
                Effect::Packed(packed) => covered.extend(packed.remembered.iter().map(|(id, _)| *id)),
                Effect::Add { .. } => {}
            }
        }
        let live = live_parts(&changes);
        let known = changes.iter().filter(|change| matches!(change.effect, Effect::Add { .. } | Effect::Set { .. }));
        let expected: IdSet<ChangeId> = known.map(|change| change.id).filter(|id| !covered.contains(id)).collect();
        prop_assert_eq!(live.len(), expected.len());
        prop_assert!(live.iter().all(|part| expected.contains(&part.id)));
    }

    /// Packing any part of a history changes nothing: not now, and not with all that follows, including changes
    /// that were made in view of the unpacked cart and keyed ones that come again.
    #[test]
    fn packing_changes_nothing(changes in history(), at in 0..24usize) {
        let at = at.min(changes.len());
        let packed = pack(ChangeId(Uuid::from_u128(999)), owner(), &changes[..at], Timestamp::from_millis(100));
        prop_assert_eq!(quantities(&changes[..at]), quantities(std::slice::from_ref(&packed)));
        let mut mixed = vec![packed];
        mixed.extend(changes[at..].iter().cloned());
        prop_assert_eq!(quantities(&changes), quantities(&mixed));
        mixed.extend(changes.iter().filter(|c| c.keyed).cloned());
        prop_assert_eq!(quantities(&changes), quantities(&mixed));
    }

    /// Nor does packing again and again over weeks, while people act on whatever they read at any time before.
    #[test]
    fn packing_again_and_again_changes_nothing(
        steps in proptest::collection::vec(
            (0..8u8, 1..4u128, 1..5u64, wait_ms(), any::<bool>(), any::<prop::sample::Index>(), any::<u32>()), 1..60),
    ) {
        let mut now = Timestamp::from_millis(1_000);
        let (mut plain, mut packed) = (Vec::<CartChange>::new(), Vec::<CartChange>::new());
        let mut looks = vec![CartView::default()];
        for (index, (step, product, quantity, wait_ms, keyed, look, place)) in steps.into_iter().enumerate() {
            now = now.plus_ms(wait_ms);
            // An id says nothing about when a change was made.
            let id = ChangeId(Uuid::from_u128(u128::from(place) << 32 | index as u128));
            let product = ProductId(Uuid::from_u128(product));
            let look = look.get(&looks);
            let effect = match step {
                0 | 1 => Effect::Add { product, quantity, zone: None },
                2 => Effect::Set { product, quantity: quantity - 1, zone: None, covers: look.made_of_line(product) },
                3 => Effect::Cover { covers: look.made_of(), order: None },
                // Whoever has the key needs no look at the cart to name what was added under it.
                4 => {
                    let keyed = plain.iter().filter(|change| change.keyed).map(|change| change.id);
                    Effect::Cover { covers: keyed.take(quantity as usize).collect(), order: None }
                }
                // What was made under a key comes again.
                5 => {
                    let recent = |change: &&CartChange| change.keyed && now.since(change.at) < KEY_MEMORY_MS;
                    packed.extend(plain.iter().filter(recent).cloned());
                    continue;
                }
                _ => {
                    packed = vec![pack(ChangeId(Uuid::from_u128(1 << 100 | index as u128)), owner(), &packed, now)];
                    prop_assert_eq!(fold(&plain), fold(&packed));
                    continue;
                }
            };
            let change = CartChange { id, at: now, origin: owner(), keyed, effect };
            plain.push(change.clone());
            packed.push(change);
            prop_assert_eq!(fold(&plain), fold(&packed));
            looks.push(fold(&packed));
        }
    }

    /// A cart takes as much as is in it: what was replaced, cleared or ordered is gone, in the end also what came under a
    /// key.
    #[test]
    fn a_packed_cart_is_made_of_what_is_in_it(changes in history(), is_guest in any::<bool>()) {
        let owner = if is_guest { Owner::Guest(SessionId(Uuid::from_u128(5))) } else { owner() };
        let packed = pack(ChangeId(Uuid::from_u128(999)), owner, &changes, Timestamp::from_millis(100));
        let later = Timestamp::from_millis(100 + KEY_MEMORY_MS);
        let packed = pack(ChangeId(Uuid::from_u128(1_000)), owner, &[packed], later);
        let Effect::Packed(packed) = &packed.effect else { panic!("not packed") };
        prop_assert_eq!(packed.parts.len(), fold(&changes).live_changes());
        prop_assert!(packed.remembered.is_empty());
    }

    /// CRT-2: three looks at a guest's cart that goes on changing, by people who saw it at any time before, while both
    /// carts are packed at any time and the user changes their own. In the end the user has what all changes of
    /// both carts together make.
    #[test]
    fn looks_at_a_guests_cart_bring_all_of_it_once(
        steps in proptest::collection::vec(
            (0..10u8, 1..4u128, 1..5u64, 0..600_000i64, any::<bool>(), any::<prop::sample::Index>(), any::<u32>()), 1..60),
        leaves_out in any::<bool>(),
    ) {
        let guest_owner = Owner::Guest(SessionId(Uuid::from_u128(5)));
        let closed_at = Timestamp::from_millis(1_000);
        let mut now = closed_at;
        let mut all = Vec::<CartChange>::new();
        let mut carts = [Vec::<CartChange>::new(), Vec::<CartChange>::new()];
        let owners = [guest_owner, owner()];
        let mut looks = [vec![CartView::default()], vec![CartView::default()]];
        let look_at_guest = |carts: &mut [Vec<CartChange>; 2]| {
            let mut brought = for_merge(&carts[0], closed_at);
            brought.retain(|change| !leaves_out || !is_known(&carts[1], change.id));
            carts[1].extend(brought);
        };
        for (index, (step, product, quantity, wait_ms, keyed, look, place)) in steps.into_iter().enumerate() {
            now = now.plus_ms(wait_ms);
            // Mostly the guest's.
            let whose = usize::from(place % 4 == 0);
            let id = ChangeId(Uuid::from_u128(u128::from(place) << 32 | index as u128));
            let product = ProductId(Uuid::from_u128(product));
            let look = look.get(&looks[whose]);
            let effect = match step {
                0..=2 => Effect::Add { product, quantity, zone: None },
                3 | 4 => Effect::Set { product, quantity: quantity - 1, zone: None, covers: look.made_of_line(product) },
                5 => Effect::Cover { covers: look.made_of(), order: None },
                6 | 7 => {
                    look_at_guest(&mut carts);
                    continue;
                }
                _ => {
                    let id = ChangeId(Uuid::from_u128(1 << 100 | index as u128));
                    carts[whose] = vec![pack(id, owners[whose], &carts[whose], now)];
                    continue;
                }
            };
            let change = CartChange { id, at: now, origin: owners[whose], keyed, effect };
            all.push(change.clone());
            carts[whose].push(change);
            looks[whose].push(fold(&carts[whose]));
        }
        look_at_guest(&mut carts);
        prop_assert_eq!(quantities(&all), quantities(&carts[1]));
        prop_assert!(has_arrived(&carts[1], &for_merge(&carts[0], closed_at)));
    }
}

/// From nothing to days.
fn wait_ms() -> impl Strategy<Value = i64> {
    prop::sample::select(&[0, 1, 60_000, 121_000, 3 * 3_600_000, 26 * 3_600_000, 240 * 3_600_000][..])
}
