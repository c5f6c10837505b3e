"""Tests of a running Shearwater in front of real engines, driven from outside like any client."""
