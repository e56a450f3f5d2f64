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

/// Found on a ring, where a cover arrived while the cart was being packed for the second time, hours after the first: the
/// part had become one with its group, which the cover did not name.
#[test]
fn a_keyed_change_can_be_covered_by_its_own_id_while_its_key_is_remembered() {
    let hours = |n: i64| Timestamp::from_millis(n * 3_600_000);
    let keyed = CartChange { keyed: true, at: hours(0), ..add(1, 7, 3) };
    let packed = pack(ChangeId(Uuid::from_u128(9)), owner(), std::slice::from_ref(&keyed), hours(0));
    let again = pack(ChangeId(Uuid::from_u128(10)), owner(), &[packed, add(2, 8, 1)], hours(6));
    let cover = change(3, Effect::Cover { covers: vec![keyed.id], order: None });
    assert_eq!(quantities(&[again, cover]), [(8, 1)]);
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

    /// Nor does packing again and again over hours, while people act on what they read up to two minutes before.
    #[test]
    fn packing_again_and_again_changes_nothing(
        steps in proptest::collection::vec((0..7u8, 1..4u128, 1..5u64, 0..80_000i64, any::<bool>()), 1..60),
    ) {
        let mut now = Timestamp::from_millis(1_000);
        let (mut plain, mut packed) = (Vec::<CartChange>::new(), Vec::<CartChange>::new());
        let mut looked = (now, fold(&plain), fold(&packed));
        for (index, (step, product, quantity, wait_ms, keyed)) in steps.into_iter().enumerate() {
            now = now.plus_ms(wait_ms);
            if now.since(looked.0) >= PART_IDENTITY_MS {
                looked = (now, fold(&plain), fold(&packed));
            }
            let id = index as u128 + 1;
            let product = ProductId(Uuid::from_u128(product));
            let keyed_changes = plain.iter().filter(|change| change.keyed).map(|change| change.id);
            let keyed_ids: Vec<ChangeId> = keyed_changes.take(quantity as usize).collect();
            let mut append = |effect: &dyn Fn(&CartView) -> Effect| {
                for (cart, view) in [(&mut plain, &looked.1), (&mut packed, &looked.2)] {
                    let id = ChangeId(Uuid::from_u128(id));
                    cart.push(CartChange { id, at: now, origin: owner(), keyed, effect: effect(view) });
                }
            };
            match step {
                0 | 1 => append(&|_| Effect::Add { product, quantity, zone: None }),
                2 => append(&|view| {
                    let covers = view.line(product).map(|line| line.made_of.clone()).unwrap_or_default();
                    Effect::Set { product, quantity: quantity - 1, zone: None, covers }
                }),
                3 => append(&|view| Effect::Cover { covers: view.made_of(), order: None }),
                4 => looked = (now, fold(&plain), fold(&packed)),
                // Whoever has the key needs no look at the cart to name what was added under it.
                5 => append(&|_| Effect::Cover { covers: keyed_ids.clone(), order: None }),
                _ => packed = vec![pack(ChangeId(Uuid::from_u128(1_000_000 + id)), owner(), &packed, now)],
            }
            prop_assert_eq!(quantities(&plain), quantities(&packed));
        }
        // What was made under a key comes again.
        for change in plain.iter().filter(|change| change.keyed && now.since(change.at) < KEY_MEMORY_MS) {
            prop_assert!(is_known(&packed, change.id));
        }
    }

    /// Parts do not stay apart for ever.
    #[test]
    fn a_cart_packed_over_hours_is_small(adds in proptest::collection::vec(1..5u64, 50..200)) {
        let mut cart = Vec::new();
        let total: u64 = adds.iter().sum();
        for (n, quantity) in adds.into_iter().enumerate() {
            let at = Timestamp::from_millis(n as i64 * 60_000);
            cart.push(CartChange { at, ..add(n as u128 + 1, 7, quantity) });
            cart = vec![pack(ChangeId(Uuid::from_u128(1_000_000 + n as u128)), owner(), &cart, at)];
        }
        prop_assert_eq!(quantities(&cart), [(7, total)]);
        let Effect::Packed(packed) = &cart[0].effect else { panic!("not packed") };
        prop_assert!(packed.parts.len() <= 8, "{} parts", packed.parts.len());
    }
}
