//! A lane carries out orders to set messages aside.
//!
//! ```text
//!   an order --between two tries--> outcome "set aside" appended --> durable --> out of the lane --> who ordered it learns it
//!                                            |
//!                                            +--> no room, or the node fails: it stays where it is
//! ```

use std::sync::Arc;

use super::Lane;
use super::reply::Tries;
use crate::queue::progress::LaneEvent;
use crate::queue::{SetAsideDone, SetAsideOrder, SetAsideRefusal};
use crate::record::{Delivery, DeliveryOutcome};

impl Lane {
    /// Carries out the orders that there are; whether there were any.
    pub(super) async fn set_aside(&mut self) -> bool {
        let line = Arc::clone(&self.queue.lanes()[self.lane]);
        let orders = line.take_set_asides();
        let any = !orders.is_empty();
        for order in orders {
            let done = self.set_one_aside(&order).await;
            // Who gave it may be gone.
            let _ = order.answer.send(done);
        }
        any
    }

    async fn set_one_aside(&mut self, order: &SetAsideOrder) -> Result<SetAsideDone, SetAsideRefusal> {
        let SetAsideOrder { id, by, reason, .. } = order;
        let line = Arc::clone(&self.queue.lanes()[self.lane]);
        let outputs = line.outputs_of(*id);
        if outputs.is_empty() {
            return Err(SetAsideRefusal::NotThere);
        }
        let was_head = line.oldest() == Some(*id);
        let detail = match line.progress().unknown(*id) {
            Some(last) => format!("{reason}; whether the receiver has it is unknown: {last}"),
            None => reason.clone(),
        };
        let at_us = self.around.clock.now_us();
        let outcome = DeliveryOutcome::SetAside;
        let of = |output: &u16| {
            let (id, output, detail, by) = (*id, *output, detail.clone(), by.clone());
            Delivery { id, output, outcome, at_us, detail, by }
        };
        let deliveries: Vec<Delivery> = outputs.iter().map(of).collect();
        let appended = self.around.message_log.record_durably(&deliveries);
        let durable = appended.map_err(|refusal| SetAsideRefusal::NotStored(refusal.to_string()))?;
        durable.await.map_err(|_| SetAsideRefusal::NotStored("the node is stopping".to_owned()))?;
        self.queue.remove(self.lane, *id);
        if was_head {
            self.tries = Tries::default();
            self.note(LaneEvent::Gone);
        }
        let count = u64::try_from(outputs.len()).unwrap_or(u64::MAX);
        self.queue.counters.set_aside.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        tracing::warn!(operation = self.queue.name, id, by, "set aside; `terrace message resend` sends it again");
        Ok(SetAsideDone { outputs: outputs.len(), at_us })
    }
}
