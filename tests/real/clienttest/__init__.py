"""Vendors' clients before Shearwater and a simulated fleet that breaks on demand."""
