//! Customers who change their minds: they set and remove lines and clear the cart, while others add to it.

use mobimir_shop::CartError;

use super::{Shopper, zone};
use crate::{
    history::{Answer, Call},
    instance::Heard,
};

impl Shopper {
    /// Only every second customer does it. What is in the carts of the others is known to the unit.
    pub(super) async fn edit_cart(&mut self) {
        if self.customer.is_multiple_of(2) {
            return self.add().await;
        }
        let (market, instance) = (self.market.clone(), self.market.any_instance());
        let (customer, item) = (self.customer, market.item());
        let product = market.products[item];
        let units = market.world.below(4);
        let clears = market.world.permille(350);
        let Some(session) = &self.session else { return };
        let token = session.tokens.last().map(|pair| pair.0.clone());
        let (adder, client) = (market.clone(), self.client);
        // An add that runs beside an edit survives it.
        let add = async {
            if let Some(token) = token.filter(|_| adder.world.permille(500)) {
                adder.world.sleep_ms(0, 40).await;
                adder.add(client, customer, None, &adder.any_instance(), token).await;
            }
        };
        let asked_ms = market.world.elapsed_ms();
        let edit = self.as_user(&instance, move |shop, caller| async move {
            let edited = match units {
                _ if clears => shop.clear_cart(&caller).await,
                0 => shop.remove_from_cart(&caller, product).await,
                units => shop.set_in_cart(&caller, product, units, Some(zone())).await,
            };
            edited.map(|_| ())
        });
        let (edited, ()) = futures_util::future::join(edit, add).await;
        let answer = match edited {
            Some(Heard::Answer(Ok(()))) => Answer::Done,
            Some(Heard::Answer(Err(CartError::Store(_))) | Heard::Nothing) => Answer::Open,
            Some(Heard::Answer(Err(_))) => Answer::Refused("no"),
            Some(Heard::Refused) => Answer::NotNow,
            None => return,
        };
        let call = if clears { Call::Clear { customer } } else { Call::SetLine { customer, item, units } };
        market.record(self.client, instance.number, asked_ms, call, answer);
    }
}
