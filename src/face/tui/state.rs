//! Types generated from the list of screens: [`Tab`], and [`State`], which holds all screens.

use super::context::Context;
pub use super::screens::{State, Tab};

/// Screen as part of the state, so that answers and typed input can be routed back to it.
pub trait Placed: Sized + 'static {
    const TAB: Tab;

    /// Borrows the screen and the shared context.
    fn of(state: &mut State) -> (&mut Self, &mut Context);
}

/// Generates the types from a list of `module::Type => "title"` in digit order.
macro_rules! screens {
    ($($module:ident::$type:ident => $title:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Tab {
            $(#[doc = $title] $type,)*
        }

        impl Tab {
            /// All tabs; the first has digit 1.
            pub const ALL: [Self; [$($title),*].len()] = [$(Self::$type),*];

            /// Binding name and description for showing each screen.
            pub const SHOW: [(&'static str, &'static str); [$($title),*].len()] =
                [$((concat!("show-", $title), concat!("screen: ", $title))),*];

            /// Tab title, also the prefix of the screen's binding names.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$type => $title,)*
                }
            }

            /// Tab `by` positions further, wrapping around.
            pub fn shifted(self, by: usize) -> Self {
                Self::ALL[(self as usize + by) % Self::ALL.len()]
            }

            pub fn bindings(self) -> Vec<$crate::face::tui::action::Row> {
                match self {
                    $(Self::$type => <<$module::$type as $crate::face::tui::screen::Acts>::Act as $crate::face::tui::action::Listed>::BINDINGS.iter().map(|b| b.row).collect(),)*
                }
            }
        }

        /// State of the whole workbench. [`super::update`] changes it, screens draw it.
        #[derive(Debug)]
        pub struct State {
            pub cx: $crate::face::tui::context::Context,
            $(#[doc = $title] pub $module: $module::$type,)*
        }

        impl State {
            pub fn new(cx: $crate::face::tui::context::Context) -> Self {
                Self { cx, $($module: Default::default(),)* }
            }

            pub fn screen(&self, tab: Tab) -> &dyn $crate::face::tui::screen::Screen {
                match tab {
                    $(Tab::$type => &self.$module,)*
                }
            }

            pub fn split(&mut self, tab: Tab) -> (&mut dyn $crate::face::tui::screen::Screen, &mut $crate::face::tui::context::Context) {
                match tab {
                    $(Tab::$type => (&mut self.$module, &mut self.cx),)*
                }
            }
        }

        $(impl $crate::face::tui::state::Placed for $module::$type {
            const TAB: Tab = Tab::$type;

            fn of(state: &mut State) -> (&mut Self, &mut $crate::face::tui::context::Context) {
                (&mut state.$module, &mut state.cx)
            }
        })*
    };
}
pub(super) use screens;
