//! A shopper who changes sides when a data centre is lost: what it has acknowledged a moment before must not be
//! done once more in the other one.

use std::sync::Arc;

use crate::{
    cassandra::Ring,
    history::{Answer, Call},
    instance::{Heard, Instance},
    shoppers::{Request, Shopper},
};

impl Shopper {
    /// Until nobody else shops any more.
    pub async fn change_sides(mut self, ring: Ring) {
        let mut losses = 0;
        loop {
            if self.session.is_none() {
                self.log_in().await;
            }
            self.add().await;
            let Some((count, dc)) = ring.next_loss(losses).await else { return };
            losses = count;
            let [near, far] = [dc, 1 - dc].map(|dc| self.next_to(&ring, dc));
            let (Some(near), Some(far)) = (near, far) else { return };
            let world = self.market.world.clone();
            world.sleep_ms(0, 15).await;
            if world.permille(500) {
                self.refresh_on_both_sides(&near).await;
            } else {
                let request = Request { lines: None, shown: None };
                let key = self.fresh_key();
                self.sent.push((key.clone(), request.clone()));
                self.place_at(&near, key, request).await;
                world.sleep_ms(0, 20).await;
                self.read_cart_at(&far).await;
            }
            world.sleep_ms(1_000, 8_000).await;
        }
    }

    fn next_to(&self, ring: &Ring, dc: usize) -> Option<Arc<Instance>> {
        self.market.instances.iter().find(|instance| ring.dc_of(instance.number) == dc).cloned()
    }

    async fn refresh_on_both_sides(&mut self, near: &Instance) {
        let Some(session) = self.session.take() else { return };
        let newest = session.tokens.len() - 1;
        self.refresh_at(near, &session, newest).await;
        for _ in 0..3 {
            self.market.world.sleep_ms(10, 1_500).await;
            self.refresh_at(&self.market.any_instance(), &session, newest).await;
        }
    }

    async fn read_cart_at(&mut self, instance: &Instance) {
        let market = self.market.clone();
        let asked_ms = market.world.elapsed_ms();
        let heard = self.as_user(instance, |shop, caller| async move { shop.cart(&caller).await }).await;
        let Some(Heard::Answer(Ok(cart))) = heard else { return };
        let lines = cart.items.iter().map(|item| (market.number_of(item.product_id), item.quantity));
        let (call, answer) = (Call::ReadCart { customer: self.customer }, Answer::Cart(lines.collect()));
        market.record(self.client, instance.number, asked_ms, call, answer);
    }
}
