//! Data sets and their scores.

use super::*;
