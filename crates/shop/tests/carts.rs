//! What a cart looks like to somebody who is quick.

mod support;

use mobimir_shop::faults::Faults;

use self::support::World;

#[tokio::test]
async fn lines_stand_in_the_order_they_were_added_within_one_millisecond_too() {
    let world = World::new();
    let shop = world.shop(Faults::none());
    for keys in [[None; 4], [Some("a"), Some("b"), Some("c"), Some("d")], [None, None, Some("e"), Some("f")]]
    {
        let products = world.products(4, 10).await;
        let caller = world.log_in(world.user()).await;
        for (product, key) in products.iter().zip(keys) {
            shop.add_to_cart(&caller, *product, 1, None, key).await.unwrap();
        }
        let cart = shop.cart(&caller).await.unwrap();
        let shown: Vec<_> = cart.items.iter().map(|item| item.product_id).collect();
        assert_eq!(shown, products, "with the keys {keys:?}");
    }
}
