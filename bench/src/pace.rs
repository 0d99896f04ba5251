//! Waking at a moment. The runtime's timers go by the millisecond, which is longer than
//! most of what is timed here takes; the kernel's are exact to some tens of microseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wakes one task, at one moment after the other.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for descriptors that may be closed meanwhile; an OwnedFd is \
                      not, and this workspace forbids unsafe code"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Sleeps until a moment; not at all if that is past.
    pub(crate) async fn sleep_until(&self, at: Instant) -> io::Result<()> {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec::try_from(left).map_err(io::Error::other)?,
            };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            let rings = |timer: &OwnedFd| {
                let mut times = [0; 8];
                rustix::io::read(timer, &mut times).map_err(io::Error::from)
            };
            self.timer.async_io(Interest::READABLE, rings).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_never_rings_early_and_goes_on_after_what_is_past() {
        let alarm = Alarm::new().unwrap();
        let begin = Instant::now();
        for micros in [0, 300, 100, 2_000, 1_999, 2_001] {
            let at = begin + Duration::from_micros(micros);
            alarm.sleep_until(at).await.unwrap();
            assert!(Instant::now() >= at);
        }
    }

    #[tokio::test]
    async fn who_stopped_waiting_may_wait_again() {
        let alarm = Alarm::new().unwrap();
        let far = alarm.sleep_until(Instant::now() + Duration::from_secs(3_600));
        assert!(futures::future::FutureExt::now_or_never(far).is_none());
        let near = Instant::now() + Duration::from_millis(1);
        alarm.sleep_until(near).await.unwrap();
        assert!(Instant::now() >= near);
    }
}
