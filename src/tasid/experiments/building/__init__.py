"""The robot in the building: episodes, sensors, and routes by η."""
